"""From a reward term or the name of a function to the function that scores."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mortal_steps.errors import RewardError
from mortal_steps.rewards.base import Loadable, RewardFunction
from mortal_steps.rewards.calling.strings import given_strings
from mortal_steps.rewards.environments import RewardEnvironment
from mortal_steps.rewards.users_code.importing import import_spec


def load_reward(spec: str) -> RewardFunction:
    """The reward function that `spec` names; modules and files are found from the working folder.

    Raises `RewardError` that names the spec, what is wrong with it and the nearest name there is.
    """
    named = f"rewards.functions: {spec!r}"
    function: Any = import_spec(spec, named, "function", inspect.isfunction)
    if _is_environment(function):
        return _made(function, {}, named)
    if inspect.isclass(function) or not callable(function):
        kind = "a class" if inspect.isclass(function) else f"of type {type(function).__name__}"
        raise RewardError(
            f"{named} is {kind}, not a function; name a function or an object that can be called, "
            "or a subclass of RewardTerm as the `type` of an entry in rewards.terms"
        )
    called: RewardFunction = function
    return called


def load_environment(spec: str, options: Mapping[str, Any]) -> RewardEnvironment:
    """The reward environment that `spec` names: an instance, or a class, made with `options`.

    Raises `RewardError` as `load_reward` does.
    """
    named = f"rewards.terms: environment = {spec!r}"
    found = import_spec(spec, named, "Class", _is_environment)
    if isinstance(found, RewardEnvironment) and not options:
        return found
    if not _is_environment(found):
        raise RewardError(
            f"{named} is no subclass of mortal.rewards.RewardEnvironment, or an instance of one "
            "that is given options; name the class"
        )
    return _made(found, options, named)


def _is_environment(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, RewardEnvironment)


def _made(
    kind: type[RewardEnvironment], options: Mapping[str, Any], named: str
) -> RewardEnvironment:
    try:
        return kind(**options)
    except (TypeError, ValueError) as error:
        raise RewardError(f"{named} with {dict(options)}: {error}") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedFunction:
    """A reward function by its name."""

    spec: str
    """`module:function` or `path/file.py:function`."""
    form: str = "trl"
    """See `FunctionTerm.form`."""

    def load(self) -> RewardFunction:
        """The function. Raises `RewardError` as `load_reward` does."""
        function = load_reward(self.spec)
        return given_strings(function) if self.form == "strings" else function


def load_term(term: Loadable) -> RewardFunction:
    """The reward function of a term, whose class is imported here where it is a user's own.

    Raises `RewardError` as `load_reward` does, and for settings that the class does not take.
    """
    if not isinstance(term, NamedFunction):
        # Imported where used: a host with functions alone starts without the configuration.
        from mortal_steps.rewards.users_code.own_term import in_its_class

        term = in_its_class(term)
    return term.load()
