"""What a dataset source is: it is asked for rows, and yields them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Row = dict[str, Any]
"""Columns by name; one of them is the prompt."""

ROWS_AT_ONCE = 1000
"""Rows of a table that are read at a time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceRequest:
    """The rows that a source is asked for."""

    task: str
    """What follows its name: `chain_sum` in `reasoning_gym:chain_sum`; empty for a user's own."""
    options: Mapping[str, Any]
    """`[data.options]`."""
    seed: int
    """The run's seed."""
    held_out: bool
    """Whether these rows are for `data.eval_source`; they should differ from the training rows."""
    origin: str
    """How an error names the source: by key and value."""


OwnRows = Callable[[bool, int | None], Iterable[Row]]
"""The rows that a run's environment brings: whether they are to be held out, and how many of them
at most. Raises `DataError` for rows that there are not."""


class DatasetSource(Protocol):
    """What an entry of `DATASET_SOURCES` names, and a user's own `module:name`: a function."""

    def __call__(self, request: SourceRequest) -> Iterator[Row]:
        """Yield the rows, in an order that depends only on the request. As few rows as possible
        should be in memory at once. Raises `DataError` if something is wrong with the request."""
        ...
