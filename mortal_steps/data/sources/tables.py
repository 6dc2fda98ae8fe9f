"""Rows of Parquet and CSV files, read by pyarrow a part at a time."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mortal_steps.data.sources.base import ROWS_AT_ONCE, Row


def parquet_rows(path: Path, _: str) -> Iterator[Row]:
    """Rows of a Parquet file, with values of the types in the file."""
    import pyarrow.parquet

    with _opened(path) as content, pyarrow.parquet.ParquetFile(content) as file:
        yield from _table_rows(file.schema_arrow.names, file.iter_batches(ROWS_AT_ONCE))


def csv_rows(path: Path, _: str) -> Iterator[Row]:
    """Every column is text, as it stands there: 007 is no number, and NA is no missing value."""
    import pyarrow.csv

    parsing = pyarrow.csv.ParseOptions(newlines_in_values=True)
    names = csv_columns(path)
    converting = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.string()))
    with (
        _opened(path) as content,
        pyarrow.csv.open_csv(content, parse_options=parsing, convert_options=converting) as batches,
    ):
        yield from _table_rows(names, batches)


def csv_columns(path: Path) -> list[str]:
    """The column names in the first line."""
    import pyarrow.csv

    parsing = pyarrow.csv.ParseOptions(newlines_in_values=True)
    with _opened(path) as content, pyarrow.csv.open_csv(content, parse_options=parsing) as reader:
        return list(reader.schema.names)


def _opened(path: Path) -> Any:
    """The file for pyarrow, which takes names in UTF-8 alone."""
    import pyarrow

    return pyarrow.OSFile(os.fsencode(path))


def _table_rows(names: Sequence[str], batches: Iterable[Any]) -> Iterator[Row]:
    """Rows of pyarrow batches; raises `ValueError` for two columns of one name."""
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"it has {count} columns {name!r}; rename or remove all but one")
    for batch in batches:
        yield from batch.to_pylist()
