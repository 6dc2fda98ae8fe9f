"""Names of files in a run directory, from whoever wrote them: none leads out of it."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator


def check_below(name: str) -> str:
    """The name itself; raises `ValueError` for one that is absolute, or goes up by `..`."""
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ValueError(f"{name!r} is no path below the run directory")
    return name


Below = Annotated[str, AfterValidator(check_below)]
"""Path of something in a run directory, relative to it; of a file of a folder, to the folder."""
