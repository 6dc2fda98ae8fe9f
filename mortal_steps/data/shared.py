"""Problems read from one large local file, kept beside the runs for all that begin with it.

    runs/.data/<digest of the file and of how it is read>/train.parquet, eval.json, rows.json

A run links its `data/train.parquet` to the one there. So a second run does not parse the file
again, and a hundred runs have one copy of its rows on the disk; none of them needs the file itself,
or this folder, once it has begun. What no run links to any more is removed when the next one begins
(shared_entries.py); what is removed here is read again by the next run that asks.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from mortal_steps.config import DataConfig, RunConfig
from mortal_steps.data.problem_files import ProblemFile
from mortal_steps.data.problems import read_problems
from mortal_steps.data.shared_entries import TRAIN, EntryLock, remove_unused
from mortal_steps.errors import CorruptFileError, DataError
from mortal_steps.store import RunStore
from mortal_steps.store.files import digest_file
from mortal_steps.system.scratch import Scratch
from mortal_steps.types import Problem

logger = logging.getLogger(__name__)

SHARED_FROM = 16 * 2**20
"""Bytes of a source; a smaller one is read in seconds."""
READER = 1
"""Increased whenever the same file would be read as other problems."""

EVAL, SUMMARY = "eval.json", "rows.json"


def read_or_share(
    config: RunConfig, scratch: Scratch, say: Callable[[str], None] | None = None
) -> tuple[ProblemFile, Sequence[Problem]]:
    """`read_problems`, or the same problems from what is kept beside the runs. Raises
    `DataError`."""
    sources = _large_sources(config.data)
    if not sources:
        return read_problems(config.data, config.seed, scratch, say)
    cache = _cache(config)
    before = [_stamp(path) for path in sources]
    key = _key(config.data, sources)
    lock = EntryLock(cache, key)
    lock.share()
    while _damage(cache, key):
        lock.be_alone()
        damage = _damage(cache, key)
        if damage:  # else another run has read the file meanwhile
            if cache.path(key).exists():
                logger.warning("the dataset is read again: %s", damage)
            cache.remove_leftovers("", of=key)
            train, held_out = read_problems(config.data, config.seed, scratch, say)
            if [_stamp(path) for path in sources] != before:
                raise DataError(
                    f"{', '.join(map(str, sources))} changed while it was read; begin again once "
                    "it is whole"
                )
            _keep(cache, key, train, held_out)
        lock.share()
    return _find(cache, key, lock)


def clean_up(config: RunConfig) -> None:
    """Remove what no run links to any more."""
    remove_unused(_cache(config))


def _cache(config: RunConfig) -> RunStore:
    return RunStore(Path(config.runs_dir).absolute() / ".data")


def _damage(cache: RunStore, key: str) -> str | None:
    """What is wrong with an entry, if anything is."""
    try:
        cache.verify_folder(key, cache.folder_digest(key))
    except CorruptFileError as error:
        return str(error)
    return None


def _large_sources(config: DataConfig) -> list[Path]:
    """The files that problems are read from, if these are all and the first is large."""
    named = (config.source, *config.eval_sources.values())
    sources = [Path(name).expanduser() for name in named if name]
    if not all(path.is_file() for path in sources):
        return []
    return sources if sources and sources[0].stat().st_size >= SHARED_FROM else []


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _key(config: DataConfig, sources: Sequence[Path]) -> str:
    read_as = config.model_dump(
        mode="json", exclude={"source", "eval_source", "eval_sets", "on_long"}
    )
    read_as["eval_sets"] = list(config.eval_sets)
    files = [(path.suffix, digest_file(path)) for path in sources]
    return hashlib.sha256(json.dumps([READER, read_as, files]).encode()).hexdigest()


def _keep(cache: RunStore, key: str, train: ProblemFile, held_out: Sequence[Problem]) -> None:
    with cache.committing_folder(key) as folder:
        train.write_to(folder / TRAIN)
        RunStore(folder).write_record(EVAL, list(held_out), list[Problem])
        (folder / SUMMARY).write_text(json.dumps({"dataset_fingerprint": train.fingerprint}))


def _find(cache: RunStore, key: str, lock: EntryLock) -> tuple[ProblemFile, Sequence[Problem]]:
    folder = cache.path(key)
    said = json.loads((folder / SUMMARY).read_text())
    found = RunStore(folder).find_record(EVAL, list[Problem])
    train = ProblemFile(folder / TRAIN, fingerprint=said["dataset_fingerprint"], keeps=lock)
    return train, found[1] if found else []
