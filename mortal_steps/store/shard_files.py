"""Name the files of the completions and scores of a step, by shard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from mortal_steps.store.records import COLUMNS
from mortal_steps.types import GeneratedShard, RewardedShard

Content = Literal["generations", "rewards"]

KINDS: dict[Content, type[GeneratedShard] | type[RewardedShard]] = {
    "generations": GeneratedShard,
    "rewards": RewardedShard,
}


def shard_file(folder: str, content: Content, shard: int) -> str:
    """Return the path of a shard's file in a folder of steps/ or evaluations/."""
    return f"{folder}/{content}-{shard}{COLUMNS}"


def shard_files(folder: Path) -> Iterator[tuple[Path, Content]]:
    """Yield every file in a folder that holds a shard, in the order of their names."""
    for content in KINDS:
        for path in sorted(folder.glob(f"{content}-*{COLUMNS}")):
            yield path, content
