"""`TextArenaEnv` of verifiers v0, by an id."""

from typing import Any

import verifiers as vf
from verifiers.envs.integrations.textarena_env import TextArenaEnv


def won(state: Any, **kwargs: Any) -> float:
    return float(state["stop_condition"] == "has_final_env_response")


def load_environment(game: str = "Hangman-v0") -> Any:
    parser = vf.XMLParser(fields=["guess"], answer_field="guess")
    rubric = vf.Rubric(funcs=[won], parser=parser)
    return TextArenaEnv(
        game, num_train_examples=20, num_eval_examples=5, parser=parser, rubric=rubric
    )
