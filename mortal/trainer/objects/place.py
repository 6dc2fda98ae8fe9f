"""Where objects are kept: `.objects` below the runs directory."""

from __future__ import annotations

from pathlib import Path

from mortal_steps.runs.objects import FOLDER


def place_of(runs_dir: str, kind: str, digest: str) -> Path:
    """Path of the object of a kind, from the current folder where it is below that."""
    path = (Path(runs_dir).expanduser() / FOLDER / f"{kind}-{digest[:24]}").absolute()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
