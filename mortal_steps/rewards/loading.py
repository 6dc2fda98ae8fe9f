"""Load the reward functions that terms and names stand for; a term's class may be a user's own."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from mortal_steps.config import RewardTerm
from mortal_steps.config.plain_words import complaint
from mortal_steps.errors import RewardError
from mortal_steps.rewards.base import RewardFunction
from mortal_steps.rewards.environments import RewardEnvironment
from mortal_steps.users_code.loading import import_code


def load_reward(spec: str) -> RewardFunction:
    """Load the function that `spec` names, from the working folder. Raises `RewardError` with what
    is wrong and the nearest name."""
    named = f"rewards.functions: {spec!r}"
    function: Any = _import(spec, named, "function", inspect.isfunction)
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
    """Load the environment that `spec` names: an instance, or a class made with `options`. Raises
    `RewardError`."""
    named = f"rewards.terms: environment = {spec!r}"
    found = _import(spec, named, "Class", _is_environment)
    if isinstance(found, RewardEnvironment) and not options:
        return found
    if not _is_environment(found):
        raise RewardError(
            f"{named} is no subclass of mortal.rewards.RewardEnvironment, or an instance of one "
            "that is given options; name the class"
        )
    return _made(found, options, named)


def _import(spec: str, named: str, noun: str, is_one: Callable[[Any], bool]) -> Any:
    return import_code(spec, named, noun=noun, is_one=is_one, error=RewardError)


def _is_environment(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, RewardEnvironment)


def _made(
    kind: type[RewardEnvironment], options: Mapping[str, Any], named: str
) -> RewardEnvironment:
    try:
        return kind(**options)
    except ValidationError as error:
        raise RewardError(f"{named}: {'; '.join(map(complaint, error.errors()))}") from None
    except (TypeError, ValueError) as error:
        raise RewardError(f"{named} with {dict(options)}: {error}") from error


def load_term(term: RewardTerm) -> RewardFunction:
    """Return a term's function, importing a user's class. Raises `RewardError` as `load_reward`,
    for no `RewardTerm`, and for settings that it does not take."""
    if type(term) is not RewardTerm:
        return term.load()
    named = f"rewards.terms: type = {term.type!r}"
    kind = _import(term.type, named, "Class", inspect.isclass)
    if not (inspect.isclass(kind) and issubclass(kind, RewardTerm)):
        raise RewardError(
            f"{named} is no subclass of RewardTerm, which stands in "
            "mortal_steps.rewards.kinds; derive it from that"
        )
    try:
        own: RewardTerm = kind.model_validate(term.model_dump())
    except ValidationError as error:
        raise RewardError(f"{named}: {'; '.join(map(complaint, error.errors()))}") from None
    return own.load()
