"""Marks on the keys of the configuration: what a key affects, and which option of TRL it is.

    learning_rate: Annotated[float, Affects.TRAINING, Trl("learning_rate")] = Field(5e-6, ge=0)

Code that needs to know the nature of keys reads these marks (`keys.py`), so that no other list of
keys has to be kept.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

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
