"""How processes of this package begin."""

import pytest

from tests.support.forking.holder import LIGHT, HolderOfPytest
from tests.support.forking.patches import fork_by

FORKED = (
    "command_line/test_grading.py",
    "command_line/test_trying_",
    "environments/",
    "harnesses/",
    "policy/test_lora_options.py",
    "promotion/",
    "recipes/",
    "rewards/",
    "runs/test_begun_earlier.py",
    "runs/test_corruption.py",
    "runs/test_crash_windows.py",
    "runs/test_ended_early.py",
    "runs/test_fork",
    "runs/test_pruned_rollouts.py",
    "runs/test_reward_sources.py",
    "selection/",
    "serving/test_endpoint.py",
    "test_atropos_run.py",
    "test_bad_input.py",
    "test_direct_run.py",
    "test_distillation.py",
    "test_extending",
    "test_nothing_to_learn.py",
    "test_notices_of_a_run.py",
    "test_opd.py",
    "test_rloo.py",
    "test_rounds.py",
    "test_rows.py",
)
"""Tests of what comes of a run."""
INTERPRETERS = (
    "environments/test_cells.py",
    "environments/test_describing.py",
    "environments/test_environment_failures.py",
    "environments/test_interpreter.py",
    "rewards/test_host_process.py",
    "rewards/test_import_order.py",
    "rewards/test_pools.py",
    "rewards/test_reward_model.py",
    "rewards/test_sources.py",
)
"""Tests of how interpreters start, and of what they see."""


@pytest.fixture(scope="session")
def holder():
    return HolderOfPytest()


@pytest.fixture(scope="module", autouse=True)
def processes_are_forked(request, holder):
    """In these, workers and hosts of users' code are forked off processes that have imported what
    they need."""
    name = request.path.relative_to(request.config.rootpath / "tests/integration").as_posix()
    if not name.startswith(FORKED) or name.startswith(INTERPRETERS):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        fork_by(holder, LIGHT, patch.setattr)
        yield
