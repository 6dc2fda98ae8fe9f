"""Committed folders: their manifests, how they replace each other, and which files are hashed."""

import contextlib
import errno
import itertools
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from mortal_steps.errors import CorruptFileError
from mortal_steps.store.files import hidden_beside
from mortal_steps.types.references import check_below

FOLDER_MANIFEST = "manifest.json"


def listed_files(manifest: bytes, origin: Path | str) -> dict[str, str]:
    """Return the digest of each file that a folder's manifest lists; raises `CorruptFileError`,
    which begins with the `origin`, for what is none, or lists files outside of the folder."""
    try:
        files = dict(json.loads(manifest)["files"])
        for name in files:
            check_below(name)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        outside = isinstance(error, ValueError) and "no path below" in str(error)
        why = f"its list of files is wrong: {error}" if outside else "it lists no files"
        raise CorruptFileError(f"{origin} is damaged: {why}") from None
    return files


def raise_damage(checks: Iterable[tuple[Path, str | None]]) -> None:
    """Raise `CorruptFileError` for the first damaged file."""
    for path, damage in checks:
        if damage is not None:
            raise CorruptFileError(f"{path} {damage}")


def manifest_of(digests: Mapping[str, str]) -> bytes:
    return json.dumps({"files": digests}, indent=1, sort_keys=True).encode()


def files_below(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def looks_below(path: Path) -> Iterator[os.stat_result]:
    """Yield what the system says of a file, or of a folder and of all that is in it, but for what
    another process removes meanwhile."""
    inside = (
        os.path.join(folder, name)
        for folder, folders, files in os.walk(path)
        for name in (*folders, *files)
    )
    for each in itertools.chain([str(path)], inside):
        with contextlib.suppress(FileNotFoundError):
            yield os.lstat(each)


def replace_folder(source: Path, target: Path) -> None:
    """Rename a folder, and delete one that has the new name already. The rename reaches the disk
    with the next sync of the parent folder."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        doomed = hidden_beside(target, "replaced")
        target.rename(doomed)
        source.rename(target)
        shutil.rmtree(doomed)


YOUNG_NS = 50_000_000
"""Nanoseconds. A file may change twice within a tick of the file system's clock without a new
time."""

_Look = tuple[int, int, int]
"""Inode, size in bytes, and time of the last change in ns."""


class VerifiedFiles:
    """The memory of one store. A file whose inode, size or time has changed is hashed again."""

    def __init__(self) -> None:
        self._looks: dict[Path, tuple[str, _Look]] = {}

    def look(self, path: Path) -> _Look | None:
        """Return how a file looks now; None if it was changed too recently to tell."""
        found = path.stat()
        if time.time_ns() - found.st_mtime_ns < YOUNG_NS:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def note(self, path: Path, digest: str, look: _Look | None) -> None:
        """Note that the file had this digest when it looked like that."""
        if look is not None:
            self._looks[path] = digest, look

    def is_known(self, path: Path, digest: str) -> bool:
        """Return whether the file was found to have this digest and still looks as it did then."""
        noted = self._looks.get(path)
        return noted is not None and noted == (digest, self.look(path))

    def forget(self, folder: Path) -> None:
        for path in [path for path in list(self._looks) if folder in path.parents]:
            self._looks.pop(path, None)
