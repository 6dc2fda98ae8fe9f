"""The table of dataset sources, by the names with which `data.source` begins: `KIND:TASK`.

A user's own source is written `module:name`. Anything else is a file, a folder or a dataset of the
hub.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from mortal_steps.config.names import is_imported

REASONING_GYM = "reasoning_gym"
"""The source whose rows contain what the verifier of their task needs."""
DATASET_SOURCES: Mapping[str, str] = {
    REASONING_GYM: "mortal_steps.data.sources.reasoning_gym_tasks:read_task",
}
"""`module:name` of each `DatasetSource` (mortal_steps/data/sources/base.py)."""


class MadeRows(NamedTuple):
    """A source whose rows are made by code, not read from a file, a folder or the hub."""

    kind: str
    """A name in `DATASET_SOURCES`; empty for a user's own."""
    maker: str
    """`module:name` of the `DatasetSource`."""
    task: str
    """What follows the kind, after the colon."""


def made_rows(source: str) -> MadeRows | None:
    """The code that makes the rows of `data.source` or `data.eval_source`; None if they are read
    and not made."""
    kind, colon, task = source.partition(":")
    if colon and kind in DATASET_SOURCES:
        return MadeRows(kind, DATASET_SOURCES[kind], task)
    if is_imported(source) and not Path(source).exists():
        return MadeRows("", source, "")
    return None
