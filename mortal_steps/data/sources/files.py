"""Rows of a single file, whose type its suffix tells."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from mortal_steps.data.sources.base import Row
from mortal_steps.data.sources.json_rows import json_lines, json_rows
from mortal_steps.data.sources.tables import csv_rows, parquet_rows
from mortal_steps.errors import DataError

FILE_TYPES: Mapping[str, Callable[[Path, str], Iterator[Row]]] = {
    ".jsonl": json_lines,
    ".json": json_rows,
    ".parquet": parquet_rows,
    ".csv": csv_rows,
}
"""The reader of each: takes the file, and how an error names it; raises `DataError`, or `OSError`
and `ValueError`, of which a `DataError` is made."""


def is_file(path: Path) -> bool:
    """Whether a source of this name is a file, whether it exists or not."""
    return path.is_file() or path.suffix in FILE_TYPES


def read_file(path: Path, place: str) -> Iterator[Row]:
    """The file's rows; raises `DataError`."""
    if path.suffix not in FILE_TYPES:
        raise DataError(f"{place}: unknown kind of file; use one of {', '.join(FILE_TYPES)}")
    if not path.exists():
        raise DataError(f"{place}: no such file{nearest_path(path)}")
    try:
        yield from FILE_TYPES[path.suffix](path, place)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{place} is no text in UTF-8 ({error.reason}: {error.object[error.start]:#04x}); save "
            "it in UTF-8, for example with `iconv --to-code=utf-8`"
        ) from error
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise DataError(f"{place}: cannot be read: {error}") from error


def nearest_path(path: Path) -> str:
    """A hint at similar names beside a path that does not exist."""
    folder = path.parent
    if not folder.is_dir():
        return f" (nor a folder {folder}); relative paths start at {Path.cwd()}"
    near = difflib.get_close_matches(path.name, [p.name for p in folder.iterdir()], n=1)
    return f"; did you mean {folder / near[0]}?" if near else f" in {folder.absolute()}"
