"""Writes rows that were given as objects into a JSON Lines file."""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from mortal_steps.data.values import as_json
from mortal_steps.errors import DataError
from mortal_steps.runs.objects import given_again, object_path
from mortal_steps.store.files import write_atomically

if TYPE_CHECKING:  # whoever gives one of these has imported its library
    from datasets import Dataset, DatasetDict, IterableDataset
    from pandas import DataFrame

    Rows: TypeAlias = (
        str
        | Path
        | Dataset
        | IterableDataset
        | DatasetDict
        | DataFrame
        | Iterable[Mapping[str, Any]]
        | Callable[[], Iterable[Mapping[str, Any]]]
    )
    """A dataset: its name, or its rows."""

TRAIN = "train"
"""The split that is taken of a dataset with several."""
MOST_ROWS = 1_000_000
"""Rows that are read of something that does not tell how many it has."""
Change = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""What becomes of a row before it is written."""


def source_of(
    dataset: Any,
    runs_dir: str,
    parameter: str,
    needs: int | None = None,
    change: Change | None = None,
) -> str:
    """Return the value of `data.source` for a dataset. A name is that itself; rows are written to a
    file, whose path it is.

    Rows are dicts, in a `datasets.Dataset`, a DataFrame, a list, or anything else that can be read
    row by row; of several splits, `train` is taken. What has no length is read once, to its end or
    to the number of rows that the run `needs`. Raises `DataError` for anything else, for a value
    that JSON cannot represent, and for a name where rows are to `change`.
    """
    if isinstance(dataset, str | Path):
        if change is not None:
            raise DataError(
                f"{parameter} = {str(dataset)!r} is a name, and formatting_func takes rows: give "
                f"them, such as {parameter}=datasets.load_dataset(...)"
            )
        return str(dataset)
    if isinstance(dataset, Mapping):
        if TRAIN not in dataset:
            first = next(iter(dataset), "...")
            raise DataError(
                f"{parameter} holds several splits or columns ({', '.join(map(str, dataset))}) and "
                f"none of them is {TRAIN!r}; give one dataset of rows, such as "
                f"{parameter}=dataset[{first!r}]"
            )
        return source_of(dataset[TRAIN], runs_dir, parameter, needs, change)
    return str(_written(_rows(dataset, parameter, needs), runs_dir, parameter, change))


def eval_keys(dataset: Any, runs_dir: str, change: Change | None = None) -> dict[str, Any]:
    """Return the keys of `[data]` for one evaluation dataset or several by name."""
    if not isinstance(dataset, Mapping):
        source = source_of(dataset, runs_dir, "eval_dataset", change=change)
        return {"data.eval_source": source}
    sets = {
        str(name): source_of(rows, runs_dir, f"eval_dataset[{name!r}]", change=change)
        for name, rows in dataset.items()
    }
    return {"data.eval_sets": sets}


def _rows(dataset: Any, parameter: str, needs: int | None) -> Iterable[Any]:
    if type(dataset).__name__ == "DataFrame":  # iterated by columns
        is_pandas = hasattr(dataset, "iloc")
        rows: list[Any] = dataset.to_dict("records") if is_pandas else dataset.to_dicts()
        return rows
    shown = dict(getattr(dataset, "format", {}))
    if shown.pop("type", None) not in (None, "custom"):
        # Tensors would hold the same in fewer digits. What its format hides stays hidden.
        del shown["format_kwargs"]
        dataset = dataset.with_format(None, **shown)
    if callable(dataset) and not isinstance(dataset, Iterable):
        dataset = dataset()  # a generator function
    if isinstance(dataset, Iterable):
        return dataset if isinstance(dataset, Sized) else _ending(dataset, parameter, needs)
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):  # as torch's datasets are
        return (dataset[index] for index in range(len(dataset)))
    raise DataError(
        f"{parameter} is of type {type(dataset).__name__}, which cannot be iterated over; give a "
        "datasets.Dataset, a list of dicts, or the name of a dataset"
    )


def _ending(rows: Iterable[Any], parameter: str, needs: int | None) -> Iterator[Any]:
    """Yield the rows that are needed of what may have no end."""
    for number, row in enumerate(itertools.islice(rows, needs)):
        if number == MOST_ROWS and needs is None:
            raise DataError(
                f"{parameter} tells no length and has not ended after {MOST_ROWS:,} rows; set "
                "max_steps, with which as many rows are read as the steps take, or give "
                "itertools.islice(rows, N)"
            )
        yield row


def _written(rows: Iterable[Any], runs_dir: str, parameter: str, change: Change | None) -> Path:
    digest, lines = hashlib.sha256(), []
    for number, row in enumerate(rows):
        changed = change(row) if change is not None and isinstance(row, Mapping) else row
        line = _line(changed, f"{parameter}[{number}]")
        digest.update(line)
        lines.append(line)
    if not lines:
        raise DataError(f"{parameter} has no rows")
    path = object_path(runs_dir, "dataset", digest.hexdigest()).with_suffix(".jsonl")
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
    columns = {str(name): as_json(value, f"{place}[{name!r}]") for name, value in row.items()}
    return json.dumps(columns).encode() + b"\n"
