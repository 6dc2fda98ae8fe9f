"""Rows of local folders and of the Hugging Face Hub, read by `datasets`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mortal_steps.data.sources.base import ROWS_AT_ONCE, Row
from mortal_steps.data.sources.files import csv_columns, nearest_path
from mortal_steps.errors import DataError


def read_dataset(
    path: Path, source: str, config: str | None, split: str, place: str
) -> Iterator[Row]:
    """The rows of a split; `config` is that of a hub dataset. Raises `DataError`."""
    if not path.exists() and (source.startswith((".", "/", "~")) or source.count("/") > 1):
        raise DataError(f"{place}: no such file or folder{nearest_path(path)}")
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
            f"{nearest_path(path)} ({error})"
        ) from error
    except ConnectionError as error:
        raise DataError(
            f"{place}: no such file or folder{nearest_path(path)}; nor is it a hub dataset in the "
            f"local cache, and the hub cannot be reached ({error})"
        ) from error
    except Exception as error:
        cause = _cause(error)
        raise DataError(f"{place} cannot be read: {type(cause).__name__}: {cause}") from error


def _cause(error: BaseException) -> BaseException:
    """What began it: of a broken file `datasets` says no more than that there was an error."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _as_text(folder: Path) -> dict[str, Any]:
    """How `datasets` reads the CSV files of a local folder as `csv_rows` reads one."""
    files = sorted(folder.rglob("*.csv")) if folder.is_dir() else []
    if not files:
        return {}
    from datasets import Features, Value

    columns = {name: Value("string") for name in csv_columns(files[0])}
    return {"features": Features(columns), "keep_default_na": False}


def _saved_split(saved: Any, split: str) -> Any:
    """The split of a `save_to_disk` folder, which holds either one table or several by name."""
    tables = saved if isinstance(saved, Mapping) else {"train": saved}
    if split not in tables:
        raise ValueError(f"it has no split {split!r}, only {', '.join(tables)}")
    return tables[split]
