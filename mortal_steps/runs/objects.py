"""What scripts gave to `MortalTrainer` as objects: rewards, environments, rows and models.

    runs/.objects/reward-3fa2c19b...pickle    each named after the digest of what it holds
    runs/.objects/dataset-91c0...jsonl
    runs/.objects/model-77ab.../

Runs name them in config.toml, several runs the same one. A script writes them before there is a run
that names them, so those that were given within the last day stay in any case. Models stay for
ever: adapters refer to them, also where no run does.
"""

import logging
import os
import shutil
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal

from mortal_steps.errors import StoreError
from mortal_steps.runs.argument import RECIPES
from mortal_steps.store.identity import CONFIG_FILE

logger = logging.getLogger(__name__)

FOLDER = ".objects"
BEFORE_A_RUN_S = 86400.0
"""Seconds for which an object is kept although no run names it yet."""
REMOVABLE = ("reward-*", "environment-*", "dataset-*", ".*")
"""Names of objects that may be removed; the last pattern is of files that a kill has left."""


def object_path(
    runs_dir: str, kind: Literal["dataset", "environment", "model", "reward"], digest: str
) -> Path:
    """Return the path of an object, relative to the current folder if it lies below it."""
    path = (Path(runs_dir).expanduser() / FOLDER / f"{kind}-{digest[:24]}").absolute()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def is_object(source: str) -> bool:
    """Return whether a path in a configuration is that of an object."""
    return Path(source).parent.name == FOLDER


def unused_objects(runs_dir: Path, *, without: Collection[str] = ()) -> list[Path]:
    """Return the objects that no run names; runs with the ids in `without` do not count. None are
    returned if a configuration cannot be read."""
    folder = runs_dir / FOLDER
    if not folder.is_dir():
        return []
    try:
        settings = [path.read_bytes() for path in _settings(runs_dir, without)]
    except OSError as error:
        logger.warning("%s cannot be read, so every object stays", error.filename)
        return []
    before = time.time() - BEFORE_A_RUN_S
    found = sorted(path for pattern in REMOVABLE for path in folder.glob(pattern))
    old = [path for path in found if path.lstat().st_mtime < before]
    return [path for path in old if not any(path.name.encode() in text for text in settings)]


def given_again(path: Path) -> None:
    """Note that a script uses an object again: it is kept until a run names it."""
    os.utime(path)


def remove_object(path: Path) -> None:
    """Remove an unused one; raises `StoreError` where it is used after all, or cannot go."""
    if path not in unused_objects(path.parents[1]):
        raise StoreError("a run names it, or a script has given it again")
    try:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{error.filename} cannot be removed: {error.strerror}") from error


def _settings(runs_dir: Path, without: Collection[str]) -> Iterator[Path]:
    found = runs_dir.glob(f"[!.]*/{CONFIG_FILE}")
    yield from (path for path in found if path.parent.name not in without)
    # Stages that have not begun name theirs there, and so do those that are no runs.
    yield from (runs_dir / RECIPES).glob("*/recipe.json")
