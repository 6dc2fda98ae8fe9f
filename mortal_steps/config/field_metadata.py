"""Marks on the keys of the configuration: what a key affects, and which option of TRL it is.

    learning_rate: Annotated[float, Affects.TRAINING, Trl("learning_rate")] = Field(5e-6, ge=0)

Code that needs to know the nature of keys reads these marks, so that no other list of keys has to
be kept.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo


class Affects(enum.Flag):
    """What changes in a run if a key has another value."""

    NOTHING = 0
    """No number: the key is about places, workers or reporting. It is not part of the run's
    fingerprint."""
    FINGERPRINT = enum.auto()
    """Nothing but the fingerprint."""
    SAMPLING = enum.auto()
    """Which completions are sampled with the same weights."""
    TRAINING = enum.auto()
    """The weights that the same scored completions lead to."""
    SCORES = enum.auto()
    """The scores of completions."""
    STATE = enum.auto()
    """What a checkpoint contains; so a fork cannot have another value."""


ANYTHING = ~Affects.NOTHING


@dataclass(frozen=True)
class AffectsByOption:
    """On a table of options for a library: what single options affect, if it differs from the
    table's own mark."""

    options: Mapping[str, Affects]


@dataclass(frozen=True)
class Trl:
    """The option of TRL that has this key's value."""

    option: str


class Decides:
    """Options of TRL that follow from this key in another way."""

    def __init__(self, *options: str) -> None:
        self.options = options


def affects_of(field: FieldInfo) -> Affects | None:
    """The mark of the key itself; None for a key without one."""
    return next((mark for mark in field.metadata if isinstance(mark, Affects)), None)


def affects_of_option(field: FieldInfo, option: str) -> Affects | None:
    """The mark of an option in a table of options."""
    for mark in field.metadata:
        if isinstance(mark, AffectsByOption) and option in mark.options:
            return mark.options[option]
    return affects_of(field)


def trl_option(field: FieldInfo) -> str | None:
    """The option of TRL that has the key's value."""
    return next((mark.option for mark in field.metadata if isinstance(mark, Trl)), None)


def trl_options(field: FieldInfo) -> tuple[str, ...]:
    """Every option of TRL that the key decides."""
    same = trl_option(field)
    others = [o for mark in field.metadata if isinstance(mark, Decides) for o in mark.options]
    return ((same,) if same else ()) + tuple(others)


def section_of(annotation: Any) -> type[BaseModel] | None:
    """The class of the table that a key is, if it is a table."""
    for candidate in (annotation, *get_args(annotation)):
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


def affected_by(section: type[BaseModel], key: str) -> Affects:
    """What a key affects; for a table, what its keys affect. A key without a mark may affect
    anything."""
    found = ANYTHING
    parts = key.split(".")
    at: type[BaseModel] | None = section
    for number, part in enumerate(parts):
        field = at.model_fields.get(part) if at else None
        if field is None:  # a setting of a kind that a user wrote
            return found
        at = section_of(field.annotation)
        option = ".".join(parts[number + 1 :]) if at is None else ""
        marked = affects_of_option(field, option.partition(".")[0])
        found &= ANYTHING if marked is None else marked
        if at is None:
            return found
    below = [affected_by(section, f"{key}.{name}") for name in at.model_fields] if at else []
    return functools.reduce(Affects.__or__, below, Affects.NOTHING)


def identity_of(
    section: BaseModel,
    dumped: Mapping[str, Any],
    within: Affects = ANYTHING,
    *,
    defaults: bool = True,
) -> dict[str, Any]:
    """Return the values in `dumped` whose keys affect anything at all; without `defaults`, those
    that are not the key's default."""
    found: dict[str, Any] = {name: dumped[name] for name in section.model_extra or {}}
    for name, field in type(section).model_fields.items():
        value, marked = getattr(section, name), affects_of(field)
        affects = within if marked is None else within & marked
        if isinstance(value, BaseModel):
            inner = identity_of(value, dumped[name], affects, defaults=defaults)
            if inner:
                found[name] = inner
        elif affects and value and isinstance(value, tuple) and isinstance(value[0], BaseModel):
            pairs = zip(value, dumped[name], strict=True)
            found[name] = [identity_of(one, its, affects, defaults=defaults) for one, its in pairs]
        # Each kind has its own `type` as the default, so that alone tells kinds apart.
        elif affects and (defaults or name == "type" or value != _default(field)):
            found[name] = dumped[name]
    return found


@functools.cache
def trl_options_decided(section: type[BaseModel]) -> Mapping[str, str]:
    """The options of TRL that keys of ours decide, each with the names of these keys."""
    deciding: dict[str, list[str]] = {}
    for key, field in keys_of(section):
        for option in trl_options(field):
            deciding.setdefault(option, []).append(key)
    return {option: " and ".join(keys) for option, keys in deciding.items()}


def trl_values(section: BaseModel) -> dict[str, Any]:
    """The options of TRL whose values keys of ours hold."""
    found: dict[str, Any] = {}
    for name, field in type(section).model_fields.items():
        value, option = getattr(section, name), trl_option(field)
        if isinstance(value, BaseModel):
            found |= trl_values(value)
        elif option is not None:
            found[option] = value
    return found


def _default(field: FieldInfo) -> Any:
    return field.get_default(call_default_factory=True)
