"""How many workers and processes score, by the configuration."""

from typing import Any

from pydantic import ValidationError

from mortal_steps.plan.run_config import RunConfig
from tests.support.refused import refused

FUNCTION = {"type": "function", "function": "rewards.py:f"}


def config(**rewards: Any) -> RunConfig:
    return RunConfig.model_validate({"rewards": rewards, "rollout": {"num_shards": 4}})


def test_how_a_function_is_called_is_part_of_a_run_and_in_how_many_processes_is_not() -> None:
    plain = config(terms=[FUNCTION])
    same = [config(terms=[{**FUNCTION, "processes": 1}])]
    assert {each.fingerprint() for each in same} == {plain.fingerprint()}
    by_problem = {**FUNCTION, "calls": "problem"}
    several = [config(terms=[{**by_problem, "processes": n}]).fingerprint() for n in (1, 8)]
    (found,) = {config(terms=[by_problem]).fingerprint(), *several}
    assert found != plain.fingerprint()


def test_one_call_is_in_one_process() -> None:
    with refused(ValidationError, "processes = 4", "calls = 'problem'"):
        config(terms=[{**FUNCTION, "processes": 4}])
