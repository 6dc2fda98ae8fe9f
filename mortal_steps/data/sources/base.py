"""What a source of rows is asked, and what it gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Row = dict[str, Any]
"""Columns by name; one of them is the prompt."""

ROWS_AT_ONCE = 1000
"""Of a table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceRequest:
    """Which rows a source is asked for."""

    task: str
    """What stands behind the name of its kind, `chain_sum` in `reasoning_gym:chain_sum`; empty for
    a source of a user's own."""
    options: Mapping[str, Any]
    """`[data.options]`."""
    seed: int
    """The run's."""
    held_out: bool
    """Whether these rows are `data.eval_source`, which should be others than those to train on."""
    place: str
    """How an error names the source: key and value."""


class DatasetSource(Protocol):
    """What an entry of `DATASET_SOURCES` names, and a user's own `module:name`: a function."""

    def __call__(self, request: SourceRequest) -> Iterator[Row]:
        """The rows, in an order that depends on the request alone. As few of them as possible are
        in memory at once. Raises `DataError` for what is wrong with the request."""
        ...
