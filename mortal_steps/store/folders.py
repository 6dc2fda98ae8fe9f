"""Committed folders, as plain functions: their manifests, and how they take their place."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from mortal_steps.errors import CorruptFileError
from mortal_steps.store.files import hidden_beside
from mortal_steps.types.paths import check_below

FOLDER_MANIFEST = "manifest.json"


def listed_files(manifest: bytes, origin: Path | str) -> dict[str, str]:
    """Digest of each file that a folder's manifest lists; raises `CorruptFileError`, which begins
    with the `origin`, for what is none, or lists files outside of the folder."""
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
    """A manifest that lists these files and their digests."""
    return json.dumps({"files": digests}, indent=1, sort_keys=True).encode()


def files_below(folder: Path) -> list[str]:
    """Names of all files, relative to the folder."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


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
