"""Writes rows that were given as objects into a JSON Lines file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sized
from pathlib import Path
from typing import Any

from mortal.trainer.objects.place import place_of
from mortal_steps.errors import DataError
from mortal_steps.runs.objects import given_again
from mortal_steps.store.files import write_atomically


def source_of(dataset: Any, runs_dir: str, parameter: str) -> str:
    """The value of `data.source` for a dataset. A name is returned as it is; rows are written to a
    file, and its path is returned.

    Rows are a `datasets.Dataset`, a list of dicts, or any other iterable of dicts that has a
    length. Raises `DataError` for anything else, and for a value that JSON cannot represent.
    """
    if isinstance(dataset, str | Path):
        return str(dataset)
    if isinstance(dataset, Mapping) or type(dataset).__name__ == "DatasetDict":
        raise DataError(
            f"{parameter} holds several splits or columns ({', '.join(map(str, dataset))}); give "
            f"one dataset of rows, such as {parameter}=dataset['train']"
        )
    if type(dataset).__name__ == "DataFrame":
        raise DataError(
            f"{parameter} is a DataFrame, which is iterated by columns; give its rows, "
            f"{parameter}=frame.to_dict('records')"
        )
    if not isinstance(dataset, Iterable) or not isinstance(dataset, Sized):
        raise DataError(
            f"{parameter} is of type {type(dataset).__name__}, which has no length or cannot be "
            "iterated over; give a datasets.Dataset, a list of dicts, or the name of a dataset; "
            "list(...) makes a list of any iterable"
        )
    if not len(dataset):
        raise DataError(f"{parameter} has no rows")
    return str(_written(dataset, runs_dir, parameter))


def _written(rows: Iterable[Any], runs_dir: str, parameter: str) -> Path:
    digest, lines = hashlib.sha256(), []
    for number, row in enumerate(rows):
        line = _line(row, f"{parameter}[{number}]")
        digest.update(line)
        lines.append(line)
    path = place_of(runs_dir, "dataset", digest.hexdigest()).with_suffix(".jsonl")
    if path.exists():
        given_again(path)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, b"".join(lines))
    return path


def _line(row: Any, place: str) -> bytes:
    if not isinstance(row, Mapping):
        raise DataError(
            f"{place} is of type {type(row).__name__}; a row is a dict of columns, such as "
            "{'prompt': 'What is 2 + 2?', 'answer': '4'}"
        )
    try:
        return json.dumps(dict(row), allow_nan=False, default=_plain).encode() + b"\n"
    except (TypeError, ValueError) as error:
        for column, value in row.items():
            try:
                json.dumps(value, allow_nan=False, default=_plain)
            except (TypeError, ValueError) as wrong:
                raise DataError(
                    f"{place}[{column!r}] = {value!r:.80}: {wrong}; columns may hold text, "
                    "numbers, lists and dicts: convert the value, or remove the column"
                ) from None
        raise DataError(f"{place}: {error}") from None


def _plain(value: Any) -> Any:
    """A number or array of numpy as Python's number or list. Raises `TypeError` for other types."""
    if type(value).__module__ == "numpy":
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
