"""Rows of JSON files: a list of objects, or one object per line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mortal_steps.data.sources.base import Row
from mortal_steps.errors import DataError

WITH_ITS_MARK = "utf-8-sig"
"""UTF-8, with the byte order mark that some editors begin a file with, or without."""


def json_lines(path: Path, place: str) -> Iterator[Row]:
    """One object per line; empty lines do not count."""
    with path.open(encoding=WITH_ITS_MARK) as lines:
        for number, line in enumerate(lines, start=1):
            row = _plain_line(line)
            if row is not None:
                yield row
            elif line.strip():
                try:
                    row = _object(_parse_json(line), f"{place}, line {number}")
                except (ValueError, RecursionError) as error:
                    reason = _without_line(error)
                    raise DataError(f"{place}, line {number} is not JSON: {reason}") from error
                yield row


def _without_line(error: Exception) -> str:
    """What is wrong in a line: json counts the lines of what it is given, which is this one."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return str(error)


def json_rows(path: Path, place: str) -> Iterator[Row]:
    """A list of objects, which is read whole."""
    text = path.read_text(encoding=WITH_ITS_MARK)
    try:
        values = _parse_json(text)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{place} is not JSON: {error}. (A file of one object per line is .jsonl)"
        ) from error
    if not isinstance(values, list):
        raise DataError(f"{place}: holds a {type(values).__name__}, not a list of rows")
    for index, value in enumerate(values):
        yield _object(value, f"{place}, row {index}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"its key {twice!r} is there twice; rename or remove one")
    return values


_decode_from_start = json.JSONDecoder(object_pairs_hook=_unique).raw_decode
"""Made once: `json.loads` makes a decoder per call, which takes longer than most lines do."""


def _plain_line(line: str) -> Row | None:
    """The row in a line that begins with it and goes on with nothing but its end; None for any
    other line, which `_parse_json` reads or refuses."""
    try:
        row, end = _decode_from_start(line)
    except (ValueError, RecursionError):
        return None
    return row if type(row) is dict and line[end:] in ("\n", "") else None


def _parse_json(text: str) -> Any:
    """A JSON value; raises `ValueError` for an object with the same key twice."""
    return json.loads(text, object_pairs_hook=_unique)


def _object(value: Any, place: str) -> Row:
    if not isinstance(value, dict):
        raise DataError(f"{place}: {value!r} is no row; each row is an object of columns")
    return value
