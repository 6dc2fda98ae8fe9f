"""Marks on the fields of records. They import nothing: what only reads records has no pydantic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints


@dataclass(frozen=True, slots=True)
class Checked:
    """Whoever reads a value from a record lets it pass this check, which raises `ValueError`."""

    check: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A field of a `Terse` record that is not written where this holds of its value."""

    where: Callable[[Any], bool]


class Terse:
    """Base of dataclasses with fields marked `LeftOut`. Older records do not know those: so they
    are the same, to the byte, when they are made again."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Called by pydantic, which writes records."""
        schema = handler(source)
        hints = get_type_hints(cls, include_extras=True)
        for field in handler.resolve_ref_schema(schema)["schema"]["fields"]:
            for mark in get_args(hints[field["name"]]):
                if isinstance(mark, LeftOut):
                    field["serialization_exclude_if"] = mark.where
        return schema
