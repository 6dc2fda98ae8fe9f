"""mortal_steps.places.modal.compute: how many containers a run has on Modal."""

from typing import Any

import pytest

from mortal_steps.places.modal.compute import num_containers
from mortal_steps.plan.run_config import RunConfig


@pytest.mark.parametrize(
    ("rewards", "where", "expected"),
    [
        ({}, "flow", {"actor": 1, "rollout": 2}),
        ({"functions": ["a.py:f"]}, "modal", {"actor": 1, "rollout": 2, "reward": 1}),
        ({"num_reward_workers": 3}, "modal", {"actor": 1, "rollout": 2, "reward": 3}),
        ({"num_reward_workers": 3}, "flow", {"actor": 1, "rollout": 2}),
    ],
)
def test_rewards_have_as_many_containers_as_are_asked_for(
    rewards: dict[str, Any], where: str, expected: dict[str, int]
) -> None:
    compute = {"backend": "modal", "modal": {"rewards": where}}
    config = RunConfig.model_validate({"rewards": rewards, "compute": compute})
    workers = (config.num_rollout_workers, config.rewards.num_reward_workers)
    assert num_containers(config.compute, *workers) == expected
