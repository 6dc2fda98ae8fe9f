"""Rows of a single file, whose type its suffix tells: JSON, or a table that pyarrow reads in parts;
and rows of a folder or of the Hugging Face Hub, read by `datasets`."""

import glob
import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mortal_steps.data.sources.arrow_types import dates_in, decoders, refuse_media
from mortal_steps.data.sources.base import ROWS_AT_ONCE, Row
from mortal_steps.errors import DataError
from mortal_steps.extensions import nearest_path

logger = logging.getLogger(__name__)

DATES = (
    "%s: `datasets` takes the text in %s for dates, which arrive as 2026-01-31T00:00:00 whatever "
    "is written there; name the .jsonl file itself to have the text as it stands"
)


LONGEST_ROW = 1 << 23
"""Bytes of a row of a CSV file."""


def is_file(path: Path) -> bool:
    """Return whether a source of this name is a file, whether it exists or not."""
    return path.is_file() or path.suffix in FILE_TYPES


def read_file(path: Path, origin: str, dropped: Collection[str] = ()) -> Iterator[Row]:
    """Yield the file's rows; raises `DataError`. Columns that are `dropped` may have any value."""
    if path.suffix not in FILE_TYPES:
        raise DataError(f"{origin}: unknown kind of file; use one of {', '.join(FILE_TYPES)}")
    if not path.exists():
        raise DataError(f"{origin}: no such file{nearest_path(path)}")
    try:
        yield from FILE_TYPES[path.suffix](path, origin, dropped)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{origin} is no text in UTF-8 ({error.reason}: {error.object[error.start]:#04x}); "
            "save it in UTF-8, for example with `iconv --to-code=utf-8`"
        ) from error
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        if "straddling object" in str(error):
            raise DataError(
                f"{origin}: a row is longer than {LONGEST_ROW:,} bytes; write the rows as .jsonl"
            ) from error
        raise DataError(f"{origin}: cannot be read: {error}") from error


WITH_ITS_MARK = "utf-8-sig"
"""UTF-8, with the byte order mark that some editors begin a file with, or without."""


def json_lines(path: Path, origin: str, _: Collection[str] = ()) -> Iterator[Row]:
    """Yield one object per line; empty lines do not count."""
    with path.open(encoding=WITH_ITS_MARK) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                # Without its end: what a cut line lacks would be missed at column 1 of the next.
                value = json.loads(line.rstrip("\r\n"), object_pairs_hook=_unique)
            except json.JSONDecodeError as error:
                reason = f"{error.msg} at column {error.colno}"
                raise DataError(f"{origin}, line {number} is not JSON: {reason}") from error
            except (ValueError, RecursionError) as error:
                raise DataError(f"{origin}, line {number} is not JSON: {error}") from error
            yield _object(value, f"{origin}, line {number}")


def json_rows(path: Path, origin: str, _: Collection[str] = ()) -> Iterator[Row]:
    """Yield the objects of a list, which is read whole."""
    text = path.read_text(encoding=WITH_ITS_MARK)
    try:
        values = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{origin} is not JSON: {error}. (A file of one object per line is .jsonl)"
        ) from error
    if not isinstance(values, list):
        raise DataError(f"{origin}: holds a {type(values).__name__}, not a list of rows")
    for index, value in enumerate(values):
        yield _object(value, f"{origin}, row {index}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; raise `ValueError` for a key that is there twice."""
    values = dict(pairs)
    if len(values) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"its key {twice!r} is there twice; rename or remove one")
    return values


def _object(value: Any, origin: str) -> Row:
    if not isinstance(value, dict):
        raise DataError(f"{origin}: {value!r} is no row; each row is an object of columns")
    return value


def parquet_rows(path: Path, origin: str, dropped: Collection[str] = ()) -> Iterator[Row]:
    """Yield the rows of a Parquet file, with the values that `datasets` gives; those of columns
    that are `dropped` are None."""
    import pyarrow.parquet

    with _opened(path) as content, pyarrow.parquet.ParquetFile(content) as file:
        schema = file.schema_arrow
        decode = decoders(schema, origin, dropped)
        kept = [name for name in schema.names if name not in dropped]
        left_out = dict.fromkeys(name for name in schema.names if name in dropped)
        batches = file.iter_batches(ROWS_AT_ONCE, columns=kept if left_out else None)
        for row in _table_rows(schema.names, batches):
            if decode or left_out:
                decoded = {name: one(row[name]) for name, one in decode.items()}
                row = {**row, **left_out, **decoded}
            yield row


def csv_rows(path: Path, _: str, dropped: Collection[str] = ()) -> Iterator[Row]:
    """Yield rows of text, as it stands: 007 is no number, NA is not missing."""
    import pyarrow.csv

    reading, parsing = _csv_options()
    names = csv_columns(path)
    converting = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.string()))
    with (
        _opened(path) as content,
        pyarrow.csv.open_csv(content, reading, parsing, converting) as batches,
    ):
        yield from _table_rows(names, batches)


def csv_columns(path: Path) -> list[str]:
    """Return the column names in the first line."""
    import pyarrow.csv

    with _opened(path) as content, pyarrow.csv.open_csv(content, *_csv_options()) as reader:
        return list(reader.schema.names)


def _csv_options() -> tuple[Any, Any]:
    """Return how a CSV file is read and parsed: a row may be as long as a block."""
    import pyarrow.csv

    reading = pyarrow.csv.ReadOptions(block_size=LONGEST_ROW)
    return reading, pyarrow.csv.ParseOptions(newlines_in_values=True)


def _opened(path: Path) -> Any:
    """Return the file for pyarrow, which takes names in UTF-8 alone."""
    import pyarrow

    return pyarrow.OSFile(os.fsencode(path))


def _table_rows(names: Sequence[str], batches: Iterable[Any]) -> Iterator[Row]:
    """Yield the rows of pyarrow batches; raises `ValueError` for two columns of one name."""
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"it has {count} columns {name!r}; rename or remove all but one")
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS_AT_ONCE):
            yield from batch.slice(start, ROWS_AT_ONCE).to_pylist()


FILE_TYPES: Mapping[str, Callable[[Path, str, Collection[str]], Iterator[Row]]] = {
    ".jsonl": json_lines,
    ".json": json_rows,
    ".parquet": parquet_rows,
    ".csv": csv_rows,
}
"""The reader of each: takes the file, how an error names it, and the columns that nobody needs;
raises `DataError`, or `OSError` and `ValueError`, of which a `DataError` is made."""


def read_dataset(
    path: Path,
    source: str,
    config: str | None,
    split: str,
    origin: str,
    dropped: Collection[str] = (),
) -> Iterator[Row]:
    """Yield the rows of a split; `config` is that of a hub dataset. The values of columns that are
    `dropped` are None. Raises `DataError`."""
    if not path.exists() and (source.startswith((".", "/", "~")) or source.count("/") > 1):
        raise DataError(f"{origin}: no such file or folder{nearest_path(path)}")
    import datasets
    from datasets.exceptions import DatasetNotFoundError

    try:
        if (path / "dataset_dict.json").exists() or (path / "state.json").exists():
            table = _saved_split(datasets.load_from_disk(path), split)
        else:
            _check_is_no_pattern(path, origin)
            table = datasets.load_dataset(str(path), name=config, split=split, **_as_text(path))
        left_out = dict.fromkeys(name for name in table.column_names if name in dropped)
        table = table.remove_columns(list(left_out))
        features = table.features.to_dict()
        refuse_media(features, origin)
        if table.builder_name == "json" and (dates := dates_in(features)):
            logger.warning(DATES, origin, ", ".join(map(repr, dates)))
        for batch in table.iter(ROWS_AT_ONCE):
            for values in zip(*batch.values(), strict=True):
                yield {**dict(zip(batch, values, strict=True)), **left_out}
    except DataError:
        raise
    except DatasetNotFoundError as error:
        raise DataError(
            f"{origin}: no such dataset on the hub, and no such file or folder"
            f"{nearest_path(path)} ({error})"
        ) from error
    except ConnectionError as error:
        raise DataError(
            f"{origin}: no such file or folder{nearest_path(path)}; nor is it a hub dataset in the "
            f"local cache, and the hub cannot be reached ({error})"
        ) from error
    except Exception as error:
        cause = _cause(error)
        raise DataError(f"{origin} cannot be read: {type(cause).__name__}: {cause}") from error


def _check_is_no_pattern(folder: Path, origin: str) -> None:
    """Raise `DataError` for a folder whose path `datasets` would treat as a pattern: it would read
    the folders that match, or none."""
    path = str(folder.absolute())
    if folder.is_dir() and glob.has_magic(path):
        raise DataError(
            f"{origin}: `datasets` treats `*`, `?` and `[` in {path} as a pattern, and would read "
            "whatever matches it; rename the folder, or name a file in it"
        )


def _cause(error: BaseException) -> BaseException:
    """Return the first error: of a broken file `datasets` says no more than that there was one."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _as_text(folder: Path) -> dict[str, Any]:
    """Return how `datasets` reads the CSV files of a local folder as `csv_rows` reads one."""
    files = sorted(folder.rglob("*.csv")) if folder.is_dir() else []
    if not files:
        return {}
    from datasets import Features, Value

    columns = {name: Value("string") for name in csv_columns(files[0])}
    return {"features": Features(columns), "keep_default_na": False}


def _saved_split(saved: Any, split: str) -> Any:
    """Return the split of a `save_to_disk` folder, which holds one table or several."""
    tables = saved if isinstance(saved, Mapping) else {"train": saved}
    if split not in tables:
        raise ValueError(f"it has no split {split!r}, only {', '.join(tables)}")
    return tables[split]
