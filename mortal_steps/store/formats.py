"""The format of what is written in a run directory."""

from __future__ import annotations

from pathlib import Path

from mortal_steps.errors import NewerFormatError

FORMAT = 1
"""The format of what is written here. It grows when older code could no longer read, or would
misread, what newer code writes; a new field with a default is no new format."""


def check_format(path: Path, written_in: int) -> None:
    """Raise `NewerFormatError` for a format that this code does not know."""
    if written_in > FORMAT:
        raise NewerFormatError(
            f"{path} is of format {written_in}, and this version of MORTAL knows none beyond "
            f"{FORMAT}: a newer version wrote it; continue with that one"
        )
