"""What a disk does to files."""

import random
import shutil
from pathlib import Path


def flip_a_byte(path: Path) -> None:
    """One bit in the middle of the file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def flip_a_bit(path: Path, place: str = "") -> None:
    """At a place that `place`, or the name, decides; a file linked elsewhere stays whole there."""
    content = bytearray(path.read_bytes())
    position = random.Random(place or path.name).randrange(8 * len(content))
    content[position // 8] ^= 1 << position % 8
    path.unlink()
    path.write_bytes(content)


def lose_the_last_step(run):
    """The step that has to be taken again then, with three of its four shards sampled before."""
    shutil.rmtree(run.store.path(run.manifest.checkpoints[-1].path))
    step = run.manifest.step - 1
    flip_a_byte(run.store.path(f"steps/{step:06d}/generations-1.parquet"))
    return step
