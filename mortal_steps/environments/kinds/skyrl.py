"""`type = "skyrl"`: environments of SkyRL-gym, https://github.com/NovaSky-AI/SkyRL (`pip install
skyrl-gym`)."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field

from mortal_steps.config.environment import PickledCode
from mortal_steps.config.section import Options
from mortal_steps.environments.inside.loading import load_code
from mortal_steps.environments.kinds.base import CalledEnvironment
from mortal_steps.environments.kinds.episode_return import EpisodeReturn, ReturnRule
from mortal_steps.errors import ConfigError

Messages = Sequence[Mapping[str, Any]]
ENV_CLASS = "env_class"
"""Column of SkyRL's rows that names the environment."""


class SkyRLEnvironment(CalledEnvironment):
    """`[environment]` with an environment of SkyRL-gym's, and rows as SkyRL has them: each message
    of the model is a step, and what it observes is the user's next message."""

    needs: ClassVar[Mapping[str, str]] = {"skyrl_gym": "skyrl-gym", "omegaconf": "omegaconf"}
    is_in: ClassVar[tuple[str, ...]] = ("skyrl_gym",)

    type: Literal["skyrl"] = "skyrl"
    id: str | None = None
    """Its name there, such as `gsm8k_multi_turn`, or a class of yours, as `module:Name` or
    `path/file.py:Name`. Default: the column `env_class` of each row."""
    args: Options = Field(default_factory=dict)
    """Its `env_config`."""
    extras: Options = Field(default_factory=dict)
    """What its `extras` have beside the columns of the row, such as `max_turns`."""
    reward: ReturnRule = "sum"
    """What of the rewards of its steps is the episode's: their sum, or the last one."""

    def load(self) -> Mapping[str, Callable[..., Any]]:
        return {"": partial(SkyRLGym, self, self._make())}

    def _make(self) -> Callable[..., Any]:
        """Return what makes one, of its name and its arguments."""
        import omegaconf  # noqa: F401 - here, and not in each fork

        if self._given:
            own = load_code(self._given[0], "environment.id")
            return lambda name, **arguments: own(**arguments)
        import skyrl_gym
        from skyrl_gym.envs.registration import registry

        if self.id is not None and self.id not in registry:
            raise ConfigError(
                f"environment.id = {self.id!r}: SkyRL-gym has {', '.join(sorted(registry))}; a "
                "class of yours is 'module:Name' or 'path/file.py:Name'"
            )
        return lambda name, **arguments: skyrl_gym.make(name, **arguments)

    @property
    def _given(self) -> tuple[str | PickledCode, ...]:
        return (self.id,) if self.id is not None and ":" in self.id else ()


class SkyRLGym:
    """An episode."""

    def __init__(self, config: SkyRLEnvironment, make: Callable[..., Any]) -> None:
        self._config, self._make = config, make
        self._return = EpisodeReturn(config.reward)

    def reset(self, *, prompt: Messages, **row: Any) -> str | None:
        from omegaconf import OmegaConf

        name = row.pop(ENV_CLASS, None)
        config = OmegaConf.create(dict(self._config.args))
        extras = {**row, **self._config.extras}
        self._environment = self._make(self._config.id or name, env_config=config, extras=extras)
        given = [dict(message) for message in prompt]
        begun, _ = self._environment.init([dict(message) for message in given])
        return added_to(given, begun)

    def _reply(self, text: str) -> str | None:
        step = self._environment.step(text)
        self._return.add(step["reward"])
        if step["done"]:
            return None
        return "\n".join(str(message["content"]) for message in step["observations"])

    def get_reward(self) -> float | None:
        return self._return.total


def added_to(prompt: Messages, begun: Messages) -> str | None:
    """Return what `init` has appended to the prompt's last message; None: nothing. Raises
    `ValueError` for any other change."""
    *before, last = prompt
    *first, now = begun
    text = str(now["content"])
    if first != before or {**now, "content": last["content"]} != last:
        raise ValueError(
            "init() returned other messages than the row's prompt; let it append to the last "
            "message alone, or make the prompt in the dataset"
        )
    if not text.startswith(str(last["content"])):
        raise ValueError(f"init() rewrote the prompt: {text[:200]!r}; let it append to it alone")
    return text[len(str(last["content"])) :] or None
