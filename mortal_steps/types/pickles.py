"""Pickles that an older version has written, of frozen dataclasses with slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any


def unpickle_older(self: Any, values: Sequence[Any]) -> None:
    """To be a class's `__setstate__`: fields that are newer than the pickle have their defaults.

    Fields are only ever added at the end.
    """
    known = fields(self)
    for one, value in zip(known, values, strict=False):
        object.__setattr__(self, one.name, value)
    for one in known[len(values) :]:
        made = one.default if one.default_factory is MISSING else one.default_factory()
        object.__setattr__(self, one.name, made)
