"""What each key of the configuration says of itself, besides its type and its meaning.

    learning_rate: Annotated[float, Affects.TRAINING, Trl("learning_rate")] = Field(5e-6, ge=0)

Whatever has to know keys by their nature reads these marks (`keys.py`): what belongs to a run's
fingerprint, what a fork may change, which options TRL is given. A mark on a table holds for all
keys in it; where a key has one of its own, both have to hold.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic.fields import FieldInfo


class Affects(enum.Flag):
    """What another value of a key would change in a run."""

    NOTHING = 0
    """No number: places, workers, reporting. The key is no part of the run's fingerprint."""
    FINGERPRINT = enum.auto()
    """Only the fingerprint."""
    SAMPLING = enum.auto()
    """Which completions are sampled, the weights being the same."""
    TRAINING = enum.auto()
    """The weights, the scored completions being the same."""
    SCORES = enum.auto()
    """The scores of completions."""
    STATE = enum.auto()
    """What the numbers of a checkpoint are, so that a fork cannot have another value."""


ANYTHING = ~Affects.NOTHING


@dataclass(frozen=True)
class AffectsByOption:
    """Of a table of options for a library: what single ones affect, where that is not what the
    table's own mark says."""

    options: Mapping[str, Affects]


@dataclass(frozen=True)
class Later:
    """Runs had begun before there was this key: it is part of a fingerprint only where its value is
    not the default."""


@dataclass(frozen=True)
class Trl:
    """The option of TRL's that is this key's value."""

    option: str


class Decides:
    """Options of TRL's that follow from this key in another way."""

    def __init__(self, *options: str) -> None:
        self.options = options


def affects_of(field: FieldInfo) -> Affects | None:
    """What the key's own mark says; None for a key without one."""
    return next((mark for mark in field.metadata if isinstance(mark, Affects)), None)


def affects_of_option(field: FieldInfo, option: str) -> Affects | None:
    """The same for an option in a table of options."""
    for mark in field.metadata:
        if isinstance(mark, AffectsByOption) and option in mark.options:
            return mark.options[option]
    return affects_of(field)


def is_later(field: FieldInfo) -> bool:
    """Whether it is marked as `Later`."""
    return any(isinstance(mark, Later) for mark in field.metadata)


def trl_option(field: FieldInfo) -> str | None:
    """The option of TRL's that is the key's value."""
    return next((mark.option for mark in field.metadata if isinstance(mark, Trl)), None)


def trl_options(field: FieldInfo) -> tuple[str, ...]:
    """Every option of TRL's that the key decides."""
    same = trl_option(field)
    others = [o for mark in field.metadata if isinstance(mark, Decides) for o in mark.options]
    return ((same,) if same else ()) + tuple(others)
