"""`type = "verifiers"`: environments of the package verifiers, by their id."""

import importlib.metadata
import logging
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Protocol

from pydantic import Field

from mortal_steps.config.section import Options
from mortal_steps.environments.inside.outages import Outages
from mortal_steps.environments.kinds.base import Agent, AskingEnvironment
from mortal_steps.errors import ConfigError

CHATTERS = ("verifiers", "httpx", "aiohttp.access")
"""Names of loggers that write a line or more for each request."""


class VerifiersAgent(Agent, Protocol):
    """An environment of some version of verifiers, loaded."""

    def rows(self, *, held_out: bool, limit: int | None) -> Iterable[Mapping[str, Any]]:
        """See `EnvironmentConfig.rows`."""
        ...


class VerifiersEnvironment(AskingEnvironment):
    """`[environment]` of an environment of verifiers, v0 (0.3) or v1 (0.4), as its interpreter has
    it."""

    needs: ClassVar[Mapping[str, str]] = {"verifiers": "verifiers"}
    is_in: ClassVar[tuple[str, ...]] = ("verifiers",)
    has_rows: ClassVar[bool] = True

    type: Literal["verifiers"] = "verifiers"
    id: Annotated[str, Field(min_length=1)]
    """The environment's, such as `wordle` or `owner/wordle`: the package of that name is installed
    in the environments' interpreter, or comes with verifiers."""
    args: Options = Field(default_factory=dict)
    """v0: what its `load_environment` is called with. v1: the configuration that verifiers' own
    commands take as `--env.…`, such as `{taskset = {game = "Wordle-v0"}, agent = {max_turns =
    6}}`."""

    @property
    def modules(self) -> tuple[str, ...]:
        module = self._name.replace("-", "_")
        return (*super().modules, module, module.lower())

    @property
    def _name(self) -> str:
        """The id without its owner and its version."""
        return self.id.rpartition("/")[2].partition("@")[0]

    def load_agent(self) -> VerifiersAgent:
        """Return it as the installed version of verifiers loads it."""
        for name in CHATTERS:
            logging.getLogger(name).setLevel(logging.WARNING)
        version = importlib.metadata.version("verifiers")
        numbers = tuple(int(part) for part in version.split(".")[:2])
        try:
            # Each needs its own version of verifiers.
            if numbers == (0, 3):
                from mortal_steps.environments.kinds.verifiers_v0 import EnvironmentAgent

                return EnvironmentAgent(self.id, self.args, self._name, Outages(self.outages))
            if numbers >= (0, 4):
                from mortal_steps.environments.kinds.verifiers_v1 import TasksetAgent

                return TasksetAgent(self.id, self.args, self._name, self.outages)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                f"environment.id = {self.id!r}, environment.args = {dict(self.args)}: verifiers "
                f"{version} cannot load it: {type(error).__name__}: {error}"
            ) from error
        raise ConfigError(
            f"environment.type = 'verifiers': verifiers {version} is installed in the "
            "environments' interpreter; v1 needs verifiers 0.4, v0 needs `pip install "
            "verifiers==0.3.1 renderers==0.1.10`"
        )

    def rows(self, *, held_out: bool, limit: int | None) -> Iterable[Mapping[str, Any]]:
        return self.load_agent().rows(held_out=held_out, limit=limit)
