"""How processes of this package begin."""

import pytest

from tests.support.forked_commands import HolderOfPytest, fork_by

FORKED = (
    "harnesses/",
    "promotion/",
    "recipes/",
    "rewards/",
    "selection/",
    "policy/test_lora_options.py",
    "runs/test_begun_earlier.py",
    "runs/test_corruption.py",
    "runs/test_crash_windows.py",
    "runs/test_ended_early.py",
    "runs/test_fork.py",
    "serving/test_endpoint.py",
    "test_opd.py",
)
"""Tests of what comes of a run."""
INTERPRETERS = (
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
    """In these, workers and hosts of rewards are forked off a process that has imported what they
    need."""
    name = request.path.relative_to(request.config.rootpath / "tests/integration").as_posix()
    if not name.startswith(FORKED) or name.startswith(INTERPRETERS):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        fork_by(holder, patch.setattr)
        yield
