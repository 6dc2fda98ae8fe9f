"""`type = "gem"`: environments of GEM, https://github.com/axon-rl/gem (`pip install gem-llm`)."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field

from mortal_steps.config.section import Options
from mortal_steps.environments.kinds.base import CalledEnvironment
from mortal_steps.environments.kinds.episode_return import EpisodeReturn, ReturnRule


class GemEnvironment(CalledEnvironment):
    """`[environment]` with an environment that `gem.make` makes. What it observes is the prompt
    (behind the row's own, if it has one), then the user's messages; each message of the model is an
    action."""

    needs: ClassVar[Mapping[str, str]] = {"gem": "gem-llm"}
    is_in: ClassVar[tuple[str, ...]] = ("gem",)

    type: Literal["gem"] = "gem"
    id: str
    """Its name there, such as `game:GuessTheNumber-v0-easy`."""
    args: Options = Field(default_factory=dict)
    """Further arguments of `gem.make`."""
    reward: ReturnRule = "sum"
    """What of the rewards of its steps is the episode's: their sum, or the last one."""

    def load(self) -> Mapping[str, Callable[..., Any]]:
        return {"": partial(Gem, self)}


class Gem:
    """An episode."""

    def __init__(self, config: GemEnvironment) -> None:
        import gem

        self._environment = gem.make(config.id, **config.args)
        self._return = EpisodeReturn(config.reward)

    def reset(self, *, seed: int, **row: Any) -> str:
        observation, _ = self._environment.reset(seed=seed)
        return str(observation)

    def _reply(self, text: str) -> str | None:
        observation, reward, terminated, truncated, _ = self._environment.step(text)
        self._return.add(reward)
        return None if terminated or truncated else str(observation)

    def get_reward(self) -> float | None:
        return self._return.total
