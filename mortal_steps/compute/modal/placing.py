"""Folders of the user's machine, found in a container under the same names."""

from __future__ import annotations

import shutil
from pathlib import Path


def provide(name: str, folder: Path) -> None:
    """By a link to the Volume."""
    if not Path(name).exists():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).symlink_to(folder)


def copy(name: str, folder: Path) -> None:
    """By a copy: a model in use would hold files of the Volume open."""
    if not Path(name).exists():
        shutil.copytree(folder, name)
