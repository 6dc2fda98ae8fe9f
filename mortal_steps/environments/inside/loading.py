"""Load a user's environments and tools, as TRL's GRPOTrainer does, and say what they offer."""

import copy
import inspect
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mortal_steps.config import EnvironmentConfig, RewardTerm
from mortal_steps.config.environment import PickledCode
from mortal_steps.environments.messages import REPLY, EnvironmentTools
from mortal_steps.errors import ConfigError, RewardError
from mortal_steps.rewards.calling.dispatch import takes_environments
from mortal_steps.rewards.loading import load_term
from mortal_steps.rewards.pickles.files import read_pickle
from mortal_steps.users_code.loading import import_code

logger = logging.getLogger(__name__)

Tool = Callable[..., Any]
CALL_ID = "call_id"
"""Parameter of a tool that is given the call's id, which is the same after a kill."""
OWN_SCHEMA = "json_schema"
"""Attribute of a tool that describes itself, as a function in JSON schema."""
WITH_USERS_CODE = ("function", "pickled")
"""Kinds of reward terms that may take `environments`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """Environment class and tools of one environment name."""

    factory: Tool | None
    """Class or function that makes environments; None where there are tools alone."""
    tools: Sequence[Tool]
    offered: EnvironmentTools
    """What the environment offers, without `tools`."""

    def described(self) -> EnvironmentTools:
        """Return what they offer. Raises `ConfigError` for a tool that cannot be described."""
        return replace(self.offered, tools=schemas(self.tools))


def load_code(code: str | PickledCode, key: str) -> Any:
    """Import or unpickle what a key of `[environment]` names; raise `ConfigError`."""
    try:
        if isinstance(code, str):
            return import_code(code, f"{key} = {code!r}")
        return read_pickle(Path(code.file), code.object, code.modules)
    except RewardError as error:
        raise ConfigError(str(error)) from error


def load_outage(spec: str) -> type[BaseException]:
    """Import an exception of `environment.outages`; raise `ConfigError`."""
    named = f"environment.outages: {spec!r}"
    found = import_code(spec, named, noun="Error", is_one=_is_exception)
    if not _is_exception(found):
        raise ConfigError(f"{named} is {found!r}; name a class of exceptions")
    kind: type[BaseException] = found
    return kind


def _is_exception(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def load_environments(config: EnvironmentConfig, tools: Sequence[Tool]) -> dict[str, Loaded]:
    """Load the factories, and return the environments by name; '' stands for the only one, or for
    the tools alone. An instance of each is made to see its methods. Raises `ConfigError`."""
    made = config.load()
    if made is not None:
        key = f"environment.type = {config.type!r}"
        return {name: _loaded(key, factory, tools) for name, factory in made.items()}
    if not config.factories:
        offered = EnvironmentTools(tools=(), is_stateless=True)
        return {"": Loaded(factory=None, tools=tools, offered=offered)}
    found = {}
    for name, code in config.factories.items():
        key = f"environment.factory.{name}" if name else "environment.factory"
        found[name] = _loaded(key, load_code(code, key), tools)
    return found


def _loaded(key: str, factory: Tool, tools: Sequence[Tool]) -> Loaded:
    try:
        instance = factory()
    except (Exception, SystemExit) as error:
        made = getattr(factory, "func", factory)
        raise ConfigError(
            f"{key}: {getattr(made, '__name__', made)}() raises {type(error).__name__}: {error}; "
            "it is called without arguments for each episode"
        ) from error
    kind = type(instance)
    names = dict(inspect.getmembers(kind, inspect.isfunction))
    if "reset" not in names:
        raise ConfigError(f"{key}: {kind.__name__} has no method `reset`, which begins an episode")
    if "close" in names:
        logger.warning(
            "%s: `close` of %s is a tool that the model can call; name it `_close` if it is not "
            "meant for the model",
            *(key, kind.__name__),
        )
    offered = EnvironmentTools(
        tools=(),
        reward=kind.__name__ if "get_reward" in names else None,
        is_stateless=bool(getattr(kind, "_stateless", False)),
        replies=REPLY in names,
        saves={"_save", "_load"} <= names.keys(),
    )
    return Loaded(factory=factory, tools=[*tools, *methods_of(instance)], offered=offered)


def methods_of(instance: Any) -> list[Tool]:
    """Return the public methods of the class, without `reset` and `get_reward`."""
    return [
        getattr(instance, name)
        for name, _ in inspect.getmembers(type(instance), inspect.isfunction)
        if name not in ("reset", "get_reward") and not name.startswith("_")
    ]


def schemas(tools: Iterable[Tool]) -> list[Mapping[str, Any]]:
    """Return the JSON schema of each tool, as its annotations and docstring say; raise
    `ConfigError` for a tool without them, and for two of one name."""
    found: dict[str, Mapping[str, Any]] = {}
    for tool in tools:
        name = getattr(tool, "__name__", None)
        if name is None:
            raise ConfigError(
                f"environment.tools: {tool!r} has no `__name__`, by which the model would call it; "
                "give it one, or wrap it in a function"
            )
        if name in found:
            raise ConfigError(f"environment: two tools are called {name!r}; rename one of them")
        try:
            schema = _json_schema(tool)
        except Exception as error:
            raise ConfigError(
                f"environment: the tool {name!r} cannot be described to a model: {error}; give "
                "each parameter a type and the docstring an `Args:` section"
            ) from error
        found[name] = _without_call_id(schema)
    return list(found.values())


def _json_schema(tool: Tool) -> dict[str, Any]:
    """Return the schema that a tool brings, or the one that transformers makes. A type that is a
    tensor imports torch only where the tool's module has imported it."""
    own: dict[str, Any] | None = getattr(tool, OWN_SCHEMA, None)
    if own is not None:
        return copy.deepcopy(own)
    from transformers.utils import chat_template_utils as library

    is_installed = library.is_torch_available
    library.is_torch_available = lambda: "torch" in sys.modules
    try:
        schema: dict[str, Any] = library.get_json_schema(tool)
        return schema
    finally:
        library.is_torch_available = is_installed


def _without_call_id(schema: dict[str, Any]) -> Mapping[str, Any]:
    parameters = schema["function"]["parameters"]
    parameters.get("properties", {}).pop(CALL_ID, None)
    if CALL_ID in parameters.get("required", ()):
        parameters["required"].remove(CALL_ID)
    return schema


def load_rewards(terms: Mapping[str, RewardTerm]) -> dict[str, Tool]:
    """Load the reward functions that take `environments`, by name."""
    loaded = {name: load_term(term) for name, term in terms.items() if term.type in WITH_USERS_CODE}
    return {name: function for name, function in loaded.items() if takes_environments(function)}
