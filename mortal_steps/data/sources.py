"""The rows of a dataset, wherever it lies: reasoning_gym, a file, a folder, the hub."""

from __future__ import annotations

import difflib
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mortal_steps.config import DataConfig
from mortal_steps.errors import DataError

Row = dict[str, Any]

FILE_TYPES = (".jsonl", ".json", ".parquet", ".csv")
GYM = "reasoning_gym:"
ROWS_AT_ONCE = 1000
"""Of a table."""


def read_rows(
    config: DataConfig, seed: int, *, limit: int | None = None, held_out: bool = False
) -> Iterator[Row]:
    """The first `limit` rows (default: all) of `data.source`, or of the evaluation rows' source,
    one after the other. A `.json` file is read whole, everything else in parts.

    Raises `DataError` that names the key, its value and the remedy; the iterator does, too.
    """
    return itertools.islice(_read(config, seed, held_out), limit)


def _read(config: DataConfig, seed: int, held_out: bool) -> Iterator[Row]:
    key = "data.eval_source" if held_out and config.eval_source is not None else "data.source"
    source = config.eval_source if key == "data.eval_source" else config.source
    if not source:
        raise DataError(
            f"{key} is not set; name a hub dataset, a local folder, a file "
            f"({', '.join(FILE_TYPES)}) or {GYM}TASK"
        )
    place = f"{key} = {source!r}"
    path = Path(source).expanduser()
    if source.startswith(GYM):
        _refuse_parts(config, held_out, place)
        task = source.removeprefix(GYM)
        return _read_reasoning_gym(task, config.options, seed, held_out, place)
    if path.is_file() or path.suffix in FILE_TYPES:
        _refuse_parts(config, held_out, place)
        return _read_file(path, place)
    # An evaluation source without a split of its own has the training rows' one.
    own_split = held_out and config.eval_split is not None
    split = config.eval_split if own_split else config.split
    place += f" ({'data.eval_split' if own_split else 'data.split'} = {split!r})"
    return _read_dataset(path, source, config.config, str(split), place)


def _refuse_parts(config: DataConfig, held_out: bool, place: str) -> None:
    """A single table has neither splits nor configurations."""
    chosen = {
        "data.config": config.config,
        "data.split": None if config.split == "train" else config.split,
        "data.eval_split": config.eval_split if held_out else None,
    }
    for key, value in chosen.items():
        if value is not None:
            raise DataError(
                f"{key} = {value!r}: {place} is a single table without any; leave it out (a second "
                "source goes into data.eval_source, rows to hold out into data.eval_samples)"
            )


def comes_from_gym(config: DataConfig) -> bool:
    """Whether every row, those held out included, is made by reasoning_gym here."""
    sources = [config.source, config.eval_source or config.source]
    return all(source is not None and source.startswith(GYM) for source in sources)


# --- reasoning_gym --------------------------------------------------------------------------------


def _read_reasoning_gym(
    task: str,
    options: Mapping[str, Any],
    seed: int,
    held_out: bool,
    place: str,
) -> Iterator[Row]:
    """The task's entries; held-out ones are those that follow the training rows' seeds."""
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "reasoning_gym":
            raise
        raise DataError(
            f"{place}: reasoning_gym is not installed here; `pip install 'mortal[reasoning-gym]'` "
            "installs the version that MORTAL is tested with"
        ) from None
    if task not in DATASETS:
        near = difflib.get_close_matches(task, DATASETS, n=3)
        raise DataError(
            f"{place}: reasoning_gym has no task {task!r}; "
            + (f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(DATASETS)}")
        )
    parameters = {"seed": seed, **options}
    try:
        dataset = reasoning_gym.create_dataset(task, **parameters)
        if held_out:
            # Entry i draws from seed + i, so these seeds are none of the training rows'.
            parameters["seed"] += len(dataset)
            dataset = reasoning_gym.create_dataset(task, **parameters)
        for entry in dataset:
            yield _gym_row(task, options, entry)
    except Exception as error:
        raise DataError(
            f"data.options = {dict(options)}: reasoning_gym refuses them for {task}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _gym_row(task: str, options: Mapping[str, Any], entry: Row) -> Row:
    """`task_options` and `entry` are what the task's verifier needs.

    The entry is a Python literal: some verifiers tell tuples from lists, which JSON does not.
    """
    return {
        "prompt": entry["question"],
        "answer": entry["answer"],
        "metadata": entry["metadata"],
        "source_dataset": task,
        "task_options": {key: options[key] for key in options if key not in ("size", "seed")},
        "entry": repr(_plain(entry)),
    }


def _plain(value: Any) -> Any:
    """Built-in values only, NumPy's being unreadable in a literal."""
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if type(value) in (list, tuple, set):
        return type(value)(_plain(item) for item in value)
    return value.tolist() if hasattr(value, "tolist") else value


# --- files ----------------------------------------------------------------------------------------


def _read_file(path: Path, place: str) -> Iterator[Row]:
    if path.suffix not in FILE_TYPES:
        raise DataError(f"{place}: unknown kind of file; use one of {', '.join(FILE_TYPES)}")
    if not path.exists():
        raise DataError(f"{place}: no such file{_nearest_path(path)}")
    readers = {".parquet": _parquet_rows, ".csv": _csv_rows, ".jsonl": _json_lines}
    try:
        yield from readers.get(path.suffix, _json_rows)(path, place)
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise DataError(f"{place}: cannot be read: {error}") from error


def _parquet_rows(path: Path, _: str) -> Iterator[Row]:
    import pyarrow.parquet

    with _opened(path) as content, pyarrow.parquet.ParquetFile(content) as file:
        yield from _table_rows(file.schema_arrow.names, file.iter_batches(ROWS_AT_ONCE))


def _csv_rows(path: Path, _: str) -> Iterator[Row]:
    """Every column is text, as it stands there: 007 is no number, and NA is no missing value."""
    import pyarrow.csv

    parsing = pyarrow.csv.ParseOptions(newlines_in_values=True)
    names = _csv_columns(path)
    converting = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.string()))
    with (
        _opened(path) as content,
        pyarrow.csv.open_csv(content, parse_options=parsing, convert_options=converting) as batches,
    ):
        yield from _table_rows(names, batches)


def _opened(path: Path) -> Any:
    """The file for pyarrow, which takes names in UTF-8 alone."""
    import pyarrow

    return pyarrow.OSFile(os.fsencode(path))


def _csv_columns(path: Path) -> list[str]:
    import pyarrow.csv

    parsing = pyarrow.csv.ParseOptions(newlines_in_values=True)
    with _opened(path) as content, pyarrow.csv.open_csv(content, parse_options=parsing) as reader:
        return list(reader.schema.names)


def _table_rows(names: Sequence[str], batches: Iterable[Any]) -> Iterator[Row]:
    """Rows of pyarrow batches; raises `ValueError` for two columns of one name."""
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"it has {count} columns {name!r}; rename or remove all but one")
    for batch in batches:
        yield from batch.to_pylist()


def _json_lines(path: Path, place: str) -> Iterator[Row]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                try:
                    row = _object(_parse_json(line), f"{place}, line {number}")
                except (ValueError, RecursionError) as error:
                    raise DataError(f"{place}, line {number} is not JSON: {error}") from error
                yield row


def _json_rows(path: Path, place: str) -> Iterator[Row]:
    text = path.read_text(encoding="utf-8")
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


def _parse_json(text: str) -> Any:
    """A JSON value; raises `ValueError` for an object with the same key twice."""
    return json.loads(text, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"its key {twice!r} is there twice; rename or remove one")
    return values


def _object(value: Any, place: str) -> Row:
    if not isinstance(value, dict):
        raise DataError(f"{place}: {value!r} is no row; each row is an object of columns")
    return value


def _nearest_path(path: Path) -> str:
    """A hint at what lies beside a path that does not exist."""
    folder = path.parent
    if not folder.is_dir():
        return f" (nor a folder {folder}); relative paths start at {Path.cwd()}"
    near = difflib.get_close_matches(path.name, [p.name for p in folder.iterdir()], n=1)
    return f"; did you mean {folder / near[0]}?" if near else f" in {folder.absolute()}"


# --- folders and the hub --------------------------------------------------------------------------


def _read_dataset(
    path: Path, source: str, config: str | None, split: str, place: str
) -> Iterator[Row]:
    if not path.exists() and (source.startswith((".", "/", "~")) or source.count("/") > 1):
        raise DataError(f"{place}: no such file or folder{_nearest_path(path)}")
    import datasets
    from datasets.exceptions import DatasetNotFoundError

    try:
        if (path / "dataset_dict.json").exists() or (path / "state.json").exists():
            table = _saved_split(datasets.load_from_disk(path), split)
        else:
            table = datasets.load_dataset(str(path), name=config, split=split, **_as_text(path))
        for start in range(0, len(table), ROWS_AT_ONCE):
            stop = min(start + ROWS_AT_ONCE, len(table))
            yield from table.select(range(start, stop)).to_list()
    except DatasetNotFoundError as error:
        raise DataError(
            f"{place}: no such dataset on the hub, and no such file or folder"
            f"{_nearest_path(path)} ({error})"
        ) from error
    except ConnectionError as error:
        raise DataError(
            f"{place}: no such file or folder{_nearest_path(path)}; nor is it a hub dataset in the "
            f"local cache, and the hub cannot be reached ({error})"
        ) from error
    except Exception as error:
        raise DataError(f"{place} cannot be read: {type(error).__name__}: {error}") from error


def _as_text(folder: Path) -> dict[str, Any]:
    """How `datasets` reads the CSV files of a local folder as `_read_csv` reads one."""
    files = sorted(folder.rglob("*.csv")) if folder.is_dir() else []
    if not files:
        return {}
    from datasets import Features, Value

    columns = {name: Value("string") for name in _csv_columns(files[0])}
    return {"features": Features(columns), "keep_default_na": False}


def _saved_split(saved: Any, split: str) -> Any:
    """The split of a `save_to_disk` folder, which holds either one table or several by name."""
    tables = saved if isinstance(saved, Mapping) else {"train": saved}
    if split not in tables:
        raise ValueError(f"it has no split {split!r}, only {', '.join(tables)}")
    return tables[split]
