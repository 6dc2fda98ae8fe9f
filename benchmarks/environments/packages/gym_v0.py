"""`ReasoningGymEnv` of verifiers v0, by an id."""

from typing import Any

from verifiers.envs.integrations.reasoninggym_env import ReasoningGymEnv


def load_environment(gym: str) -> Any:
    return ReasoningGymEnv(gym, num_train_examples=20, num_eval_examples=5)
