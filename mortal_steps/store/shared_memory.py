"""A run's folder in this machine's shared memory: /dev/shm/mortal-<digest of the run directory>/.

    run             the run directory that the folder belongs to
    weights/v12/    versions of `rollout.weight_sync = "direct"`, committed as in a run directory

It outlives a process that is killed, and not a reboot. What a checkpoint refers to is therefore
copied to the run directory (policy/publishing.py); all else can be made again from a checkpoint.
The folder is removed when the run's workers end, and by `mortal gc` after a kill.
"""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from mortal_steps.errors import ConfigError
from mortal_steps.store.files import delete_folder, writing

SHARED_MEMORY = Path("/dev/shm")
PREFIX = "mortal-"
RUN_FILE = "run"
REMEDY = "or choose another rollout.weight_sync, such as 'reload'"


def folder_of(run: Path) -> Path:
    """Return where the folder of the run in that directory is, whether it exists or not."""
    return SHARED_MEMORY / f"{PREFIX}{hashlib.sha256(_name_of(run)).hexdigest()[:16]}"


def make_folder(run: Path) -> None:
    """Make the run's private folder, unless it is there. Raises `ConfigError` without shared
    memory, or if it is somebody else's."""
    check_shared_memory()
    folder = folder_of(run)
    with writing(folder):
        folder.mkdir(mode=0o700, exist_ok=True)
        if not _is_own(folder):
            raise ConfigError(f"{folder} belongs to another user; remove it, {REMEDY}")
        if not (folder / RUN_FILE).exists():
            (folder / RUN_FILE).write_bytes(_name_of(run))


def remove_folder(run: Path) -> None:
    folder = folder_of(run)
    if _is_own(folder):
        delete_folder(folder)


def folders() -> Iterator[tuple[Path, Path]]:
    """Yield this user's folders, each with the run directory that it belongs to."""
    for folder in SHARED_MEMORY.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if _is_own(folder):
                yield folder, Path(os.fsdecode((folder / RUN_FILE).read_bytes()))


def check_shared_memory(needed: int = 0) -> None:
    """Raise `ConfigError` unless this machine has shared memory with so many free bytes."""
    if not os.access(SHARED_MEMORY, os.W_OK):
        raise ConfigError(
            f"rollout.weight_sync = 'direct' needs shared memory, and {SHARED_MEMORY} is not there "
            f"or not writable; mount a tmpfs there, {REMEDY}"
        )
    free = shutil.disk_usage(SHARED_MEMORY).free
    if free < needed:
        raise ConfigError(
            f"rollout.weight_sync = 'direct' needs {needed:,} bytes in {SHARED_MEMORY}, which has "
            f"{free:,} free. Enlarge it (docker run --shm-size, or mount -o remount,size=...), "
            f"{REMEDY}"
        )


def _name_of(run: Path) -> bytes:
    return os.fsencode(run.resolve())


def _is_own(folder: Path) -> bool:
    """Return whether this is a folder of this user's, and not a link to one."""
    return folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.getuid()
