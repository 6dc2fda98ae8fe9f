"""Turns tools and environments, as TRL's GRPOTrainer takes them, into keys of `[environment]`."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mortal.trainer.objects.code import pickled, spec_of
from mortal_steps.errors import ConfigError, RewardError

Tool = str | Callable[..., Any]
"""A function that the model may call, or its name, such as `"tools.py:search"`."""
Factory = str | Callable[..., Any]
"""A class of environments, a function that returns one, or its name, such as `"shop.py:Shop"`."""


def environment_keys(
    tools: Iterable[Tool] | None,
    factory: Factory | Mapping[str, Factory] | None,
    runs_dir: str,
) -> dict[str, Any]:
    """Return the keys of `[environment]`; none without anything to call. Raises `ConfigError` for
    what is no code or name, or cannot be kept in a file."""
    keys: dict[str, Any] = {}
    if tools is not None:
        if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
            raise ConfigError(
                f"tools = {tools!r:.80}: write a list of functions, such as tools=[search]"
            )
        found = [_code(tool, f"tools[{number}]", runs_dir) for number, tool in enumerate(tools)]
        if found:
            keys["environment.tools"] = found
    if isinstance(factory, Mapping):
        if not factory:
            raise ConfigError(
                "environment_factory = {}: name at least one environment, or leave it out"
            )
        keys["environment.factory"] = {
            str(name): _code(one, f"environment_factory[{name!r}]", runs_dir)
            for name, one in factory.items()
        }
    elif factory is not None:
        keys["environment.factory"] = _code(factory, "environment_factory", runs_dir)
    return keys


def agent_code(value: Any, runs_dir: str) -> str | dict[str, Any] | Mapping[str, Any]:
    """Return the key's value for the function `environment.agent`; see `environment_keys`."""
    if isinstance(value, Mapping):  # written out already
        return value
    return _code(value, "config['environment.agent']", runs_dir)


def _code(value: Any, place: str, runs_dir: str) -> str | dict[str, Any]:
    if isinstance(value, str):
        return value
    if not callable(value):
        raise ConfigError(
            f"{place} is of type {type(value).__name__}; give a function or a class, or its name "
            "such as 'path/file.py:name'"
        )
    name = spec_of(value)
    if name is not None:
        return name
    try:
        return pickled(value, "environment", place, runs_dir, besides=_signatures(value))
    except RewardError as error:
        raise ConfigError(str(error)) from error


def _signatures(value: Any) -> str:
    """Return names and argument types, which the model sees and the code's digest does not."""
    if not inspect.isclass(value):
        return _signature(value)
    methods = inspect.getmembers(value, predicate=inspect.isfunction)
    return "; ".join(f"{name} {_signature(method)}" for name, method in methods)


def _signature(function: Any) -> str:
    types = getattr(function, "__annotations__", {})
    return f"{getattr(function, '__name__', '')}{sorted((n, repr(t)) for n, t in types.items())}"
