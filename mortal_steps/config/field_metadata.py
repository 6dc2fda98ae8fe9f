"""What keys of the configuration are, beside a type and a default: metadata of their fields.

    save_steps: Annotated[int, NO_NUMBERS] = Field(100, ge=1)
    learning_rate: Annotated[float, Trl("learning_rate")] = Field(5e-6, ge=0)

Code that needs to know the nature of keys reads this metadata, so that no other list of keys has to
be kept. A key without any decides a run's numbers, and belongs to its fingerprint.
"""

import enum
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo


class Nature(enum.Enum):
    """What a key, or all keys of a table, decide."""

    NO_NUMBERS = enum.auto()
    """No number of a run: it is about machines, workers or reporting, and is not part of the run's
    fingerprint."""
    STATE = enum.auto()
    """What a checkpoint contains; so a fork cannot have another value."""
    NO_STATE = enum.auto()
    """Nothing that a checkpoint contains, whichever keys a kind of the table has."""


NO_NUMBERS, STATE, NO_STATE = Nature.NO_NUMBERS, Nature.STATE, Nature.NO_STATE


class StateOptions:
    """On a table of options for a library: those that decide what a checkpoint contains."""

    def __init__(self, *options: str) -> None:
        self.options = options


class Decides:
    """Options of TRL that follow from this key."""

    def __init__(self, *options: str) -> None:
        self.options = options


class Trl(Decides):
    """The option of TRL that has this key's value."""


def trl_option(field: FieldInfo) -> str | None:
    return next((mark.options[0] for mark in field.metadata if isinstance(mark, Trl)), None)


def section_of(annotation: Any) -> type[BaseModel] | None:
    """Return the class of the table that a key is, if it is a table, or none by default."""
    kinds = set(get_args(annotation)) - {type(None)}
    for candidate in (annotation, *(kinds if len(kinds) == 1 else ())):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def keys_of(section: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every key below a table, such as `training.lora.r`, with pydantic's description of it."""
    for name, field in section.model_fields.items():
        inner = section_of(field.annotation)
        if inner:
            yield from keys_of(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def shapes_state(section: type[BaseModel], key: str) -> bool:
    """Return whether a key below a table decides what a checkpoint contains."""
    at: type[BaseModel] | None = section
    options: set[str] = set()
    for part in re.sub(r"\[.*?\]", "", key).split("."):
        if at is None:  # an option for a library, of which the table's own metadata speaks
            return part in options
        field = at.model_fields.get(part)
        if field is not None and NO_STATE in field.metadata:
            return False
        if field is None or STATE in field.metadata:  # None: a setting of a kind that a user wrote
            return True
        marks = [mark for mark in field.metadata if isinstance(mark, StateOptions)]
        options = {option for mark in marks for option in mark.options}
        at = section_of(field.annotation)
    return False


def identity_of(
    section: BaseModel, dumped: Mapping[str, Any], *, defaults: bool = True
) -> dict[str, Any]:
    """Return the dumped values that decide numbers; without `defaults`, those that differ."""
    found: dict[str, Any] = {name: dumped[name] for name in section.model_extra or {}}
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if NO_NUMBERS in field.metadata:
            continue
        if isinstance(value, BaseModel):
            if inner := identity_of(value, dumped[name], defaults=defaults):
                found[name] = inner
        elif value and isinstance(value, tuple | dict) and _holds_tables(value):
            found[name] = _identity_of_tables(value, dumped[name], defaults=defaults)
        # Each kind has its own `type` as the default, so that alone tells kinds apart.
        elif defaults or name == "type" or value != field.get_default(call_default_factory=True):
            found[name] = dumped[name]
    return found


def _holds_tables(value: tuple[Any, ...] | dict[str, Any]) -> bool:
    values = value.values() if isinstance(value, dict) else value
    return any(isinstance(each, BaseModel) for each in values)


def _identity_of_tables(value: Any, dumped: Any, *, defaults: bool) -> Any:
    """Return the same of a list of tables or of tables by name."""
    if isinstance(value, BaseModel):
        return identity_of(value, dumped, defaults=defaults)
    if isinstance(value, dict):
        return {
            name: _identity_of_tables(each, dumped[name], defaults=defaults)
            for name, each in value.items()
        }
    if isinstance(value, tuple):
        return [
            _identity_of_tables(each, its, defaults=defaults)
            for each, its in zip(value, dumped, strict=True)
        ]
    return dumped


def with_numbers_of(section: BaseModel, other: BaseModel) -> BaseModel:
    """Return the table with all that decides numbers as the other one has it. Lists and tables by
    name of other kinds or another length are the other's as a whole."""
    if type(section) is not type(other):
        return other
    changes: dict[str, Any] = {}
    for name, field in type(other).model_fields.items():
        mine, its = getattr(section, name), getattr(other, name)
        changes[name] = mine if NO_NUMBERS in field.metadata else _with_numbers_of(mine, its)
    return other.model_copy(update=changes)


def _with_numbers_of(mine: Any, its: Any) -> Any:
    if type(mine) is not type(its):
        return its
    if isinstance(mine, BaseModel):
        return with_numbers_of(mine, its)
    if isinstance(mine, dict) and mine.keys() == its.keys():
        return {name: _with_numbers_of(mine[name], each) for name, each in its.items()}
    if isinstance(mine, tuple) and len(mine) == len(its):
        return tuple(map(_with_numbers_of, mine, its))
    return its


@functools.cache
def trl_options_decided(section: type[BaseModel]) -> Mapping[str, str]:
    """Return the options of TRL that keys of ours decide, each with the names of these keys."""
    deciding: dict[str, list[str]] = {}
    for key, field in keys_of(section):
        for mark in field.metadata:
            for option in mark.options if isinstance(mark, Decides) else ():
                deciding.setdefault(option, []).append(key)
    return {option: " and ".join(keys) for option, keys in deciding.items()}


def trl_values(section: BaseModel) -> dict[str, Any]:
    """Return the options of TRL whose values keys of ours hold."""
    found: dict[str, Any] = {}
    for name, field in type(section).model_fields.items():
        value, option = getattr(section, name), trl_option(field)
        if isinstance(value, BaseModel):
            found |= trl_values(value)
        elif option is not None:
            found[option] = value
    return found
