"""The folder that objects are kept in: `.objects` in the runs directory."""

from __future__ import annotations

from pathlib import Path

from mortal_steps.runs.objects import FOLDER


def place_of(runs_dir: str, kind: str, digest: str) -> Path:
    """Path of an object with this digest, relative to the current folder if it lies below it.

    `kind` is `dataset`, `model` or `reward`.
    """
    path = (Path(runs_dir).expanduser() / FOLDER / f"{kind}-{digest[:24]}").absolute()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
