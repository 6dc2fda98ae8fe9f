"""The table of episodes: names in `rollout.episodes` -> how a completion comes about."""

from typing import Annotated

from pydantic import AfterValidator

from mortal_steps.extensions import Registry, simple

SINGLE_TURN = "single_turn"
EPISODES = Registry(
    "rollout.episodes",
    simple({SINGLE_TURN: "mortal_steps.rollout.episodes.single_turn:SingleTurn"}),
)
"""Each is a class of `Episodes` (mortal_steps/rollout/episodes/base.py)."""

EpisodesName = Annotated[str, AfterValidator(EPISODES.check)]
