"""Where the completions and scores of a step lie, by shard.

Older code wrote them as JSON. A folder that it began is completed in JSON: what is made again
there, for a record that was damaged or lost, is the very record that the step's journal names.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from mortal_steps.store.records import COLUMNS
from mortal_steps.store.run_store import RunStore
from mortal_steps.types import GeneratedShard, RewardedShard

Content = Literal["generations", "rewards"]

KINDS: dict[Content, type[GeneratedShard] | type[RewardedShard]] = {
    "generations": GeneratedShard,
    "rewards": RewardedShard,
}
_FIRST_FORMAT = ".json"


def shard_file(folder: str, content: Content, shard: int) -> str:
    """Where a shard goes in a folder of steps/ or evaluations/ that this code began."""
    return f"{folder}/{content}-{shard}{COLUMNS}"


def file_in_use(store: RunStore, relative: str) -> str:
    """`relative`, a `shard_file`, or its name in a folder that older code began."""
    path = store.path(relative)
    if path.exists() or not any(_written_as(path.parent, _FIRST_FORMAT)):
        return relative
    return relative.removesuffix(COLUMNS) + _FIRST_FORMAT


def shard_files(folder: Path) -> Iterator[tuple[Path, Content]]:
    """Every file in a folder that holds a shard, in the order of their names."""
    for content in KINDS:
        found = [*folder.glob(f"{content}-*{COLUMNS}"), *folder.glob(f"{content}-*{_FIRST_FORMAT}")]
        for path in sorted(found):
            yield path, content


def _written_as(folder: Path, suffix: str) -> Iterator[Path]:
    return (path for path, _ in shard_files(folder) if path.suffix == suffix)
