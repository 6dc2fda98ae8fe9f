"""mortal_steps.sandbox.executors: where the programs of a run are to run."""

import pytest

from mortal_steps.errors import ConfigError, SandboxError
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.rewards.scoring.assignments import sandbox_settings
from mortal_steps.sandbox.base import ExecutionResult, Program
from mortal_steps.sandbox.executors import (
    EXECUTORS,
    ExecutorSettings,
    LocalExecutor,
    executor,
    use_settings,
)
from mortal_steps.sandbox.lane import LaneLost
from mortal_steps.sandbox.pool import Pool
from tests.support.refused import refused

CONTAINER = {"MODAL_IS_REMOTE": "1", "MODAL_IMAGE_ID": "im-1", "PATH": "/bin", "HF_TOKEN": "x"}


def config(**sandbox: object) -> RunConfig:
    rewards = {"timeout_s": 100.0, "sandbox": sandbox}
    return RunConfig.model_validate({"rewards": rewards})


def settings_of(
    config: RunConfig, environment: dict[str, str], *, sharing: int = 1
) -> ExecutorSettings:
    modal = config.compute.modal
    return sandbox_settings(config.rewards, modal.app, environment, sharing=sharing)


def test_programs_run_on_modal_where_this_is_a_container_of_its_own_or_that_is_asked_for() -> None:
    here = settings_of(config(lanes=3), {"MODAL_TOKEN_ID": "ak-1"})
    assert (here.kind, here.lanes, here.variables) == ("local", 3, {})
    inside = settings_of(config(), CONTAINER)
    assert inside.kind == "modal"
    assert inside.variables == {"MODAL_IS_REMOTE": "1", "MODAL_IMAGE_ID": "im-1"}
    assert inside.patience_s == 80.0
    assert settings_of(config(place="local"), CONTAINER).kind == "local"
    asked = settings_of(config(place="modal"), {"MODAL_TOKEN_ID": "ak-1"})
    assert (asked.kind, asked.variables) == ("modal", {"MODAL_TOKEN_ID": "ak-1"})


def test_processes_have_a_part_of_the_lanes_each_and_too_few_are_refused() -> None:
    assert settings_of(config(lanes=5), {}, sharing=2).lanes == 2
    with refused(ConfigError, "rewards.sandbox.lanes = 5", "6 processes"):
        settings_of(config(lanes=5), {}, sharing=6)
    assert settings_of(config(), {}, sharing=1000).lanes == 1
    assert settings_of(config(place="modal"), {}, sharing=2).lanes is None


def test_each_place_of_the_configuration_is_in_the_table() -> None:
    for kind in ("local", "modal"):
        assert config(place=kind).rewards.sandbox.place in EXECUTORS
    use_settings(settings_of(config(), {}))
    assert isinstance(executor(), LocalExecutor)


class Breaks:
    """A lane of a service that is away."""

    is_worn_out = False

    def run(self, program: Program) -> ExecutionResult:
        raise LaneLost("no answer")

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("patience_s", "times"), [(100.0, "3 times"), (0.0, "once")])
def test_a_program_whose_lanes_are_lost_is_given_up_in_time(patience_s: float, times: str) -> None:
    pool = Pool(Breaks, 1, patience_s=patience_s)
    with refused(SandboxError, times, "one program", "no answer"):
        pool.run([Program(code="")])
    pool.close()
