"""How many workers and processes score, by the configuration."""

from typing import Any

import pytest
from pydantic import ValidationError

from mortal_steps.config import RunConfig

FUNCTION = {"type": "function", "function": "rewards.py:f"}


def config(**rewards: Any) -> RunConfig:
    return RunConfig.model_validate({"rewards": rewards, "rollout": {"num_shards": 4}})


@pytest.mark.parametrize(
    ("rewards", "workers"),
    [
        ({"functions": ["rewards.py:f", "rewards.py:g"]}, 3),
        ({"terms": [FUNCTION, {"type": "format"}]}, 3),
        ({"functions": ["rewards.py:f", "sandbox"]}, 1),
        ({"functions": ["./models/judge"]}, 1),
        ({"terms": [{"type": "math"}]}, 1),
        ({"terms": [{"type": "judge", "model": "m"}, FUNCTION]}, 1),
        ({"terms": [{"type": "environment", "environment": "rewards.py:E"}]}, 1),
        ({"terms": [{**FUNCTION, "calls": "problem", "processes": 8}]}, 1),
        ({"terms": [{"type": "judge", "model": "m"}], "num_reward_workers": 2}, 2),
    ],
)
def test_there_is_a_worker_for_each_shard_and_core_unless_one_has_enough_to_do(
    rewards: dict[str, Any], workers: int
) -> None:
    assert config(**rewards).num_reward_workers(cores=3) == workers


def test_what_scores_evaluations_counts_and_so_do_containers() -> None:
    values = {"rewards": {"functions": ["a.py:f"]}, "evaluation": {"functions": ["sandbox"]}}
    assert RunConfig.model_validate(values).num_reward_workers(cores=8) == 1
    modal = {"backend": "modal", "modal": {"rewards": "modal"}}
    values = {"rewards": {"functions": ["a.py:f"]}, "compute": modal}
    assert RunConfig.model_validate(values).num_reward_workers(cores=8) == 1


def test_how_a_function_is_called_is_part_of_a_run_and_in_how_many_processes_is_not() -> None:
    plain = config(terms=[FUNCTION])
    same = [config(terms=[{**FUNCTION, "processes": 1}])]
    assert {each.fingerprint() for each in same} == {plain.fingerprint()}
    by_problem = {**FUNCTION, "calls": "problem"}
    several = [config(terms=[{**by_problem, "processes": n}]).fingerprint() for n in (1, 8)]
    (found,) = {config(terms=[by_problem]).fingerprint(), *several}
    assert found != plain.fingerprint()


def test_one_call_is_in_one_process() -> None:
    with pytest.raises(ValidationError, match=r"processes = 4, but .* set calls = 'problem'"):
        config(terms=[{**FUNCTION, "processes": 4}])
