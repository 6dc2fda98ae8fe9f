"""Where objects are kept: `.objects` below the runs directory."""

from __future__ import annotations

from pathlib import Path

FOLDER = ".objects"


def place_of(runs_dir: str, kind: str, digest: str) -> Path:
    """Path of the object of a kind; relative where the runs directory is."""
    return Path(runs_dir).expanduser() / FOLDER / f"{kind}-{digest[:24]}"
