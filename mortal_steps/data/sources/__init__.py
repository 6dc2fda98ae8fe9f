"""The rows of a dataset, wherever it lies.

reasoning_gym_tasks   made by reasoning_gym
files                 in a file, in a folder, on the hub
arrow_types           what the columns of a table stand for
environment           brought by the environment of the run, which hands them over as `OwnRows`

A kind of its own is an entry of `DATASET_SOURCES` (data/table.py), or `module:name`.
"""

import itertools
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import cast

from mortal_steps.config import DataConfig
from mortal_steps.config.data import ENVIRONMENT, MadeRows, made_rows
from mortal_steps.data.sources.base import DatasetSource, OwnRows, Row, SourceRequest
from mortal_steps.data.sources.files import FILE_TYPES, is_file, read_dataset, read_file
from mortal_steps.data.table import DATASET_SOURCES, REASONING_GYM
from mortal_steps.errors import DataError
from mortal_steps.extensions import nearest

__all__ = ["OwnRows", "Row", "check_options", "comes_from_gym", "read_rows"]


def read_rows(
    config: DataConfig,
    seed: int,
    *,
    limit: int | None = None,
    held_out: str | None = None,
    own_rows: OwnRows | None = None,
) -> Iterator[Row]:
    """Yield the first `limit` rows (default: all) of `data.source`, or of the source of the set
    `held_out` (`DataConfig.eval_sources`), one after the other. A `.json` file and `own_rows` are
    read whole, everything else in parts.

    Raises `DataError` that names the key, its value and the remedy; the iterator does, too.
    """
    key, source = "data.source", config.source
    if held_out:
        key, source = f"data.eval_sets.{held_out}", config.eval_sets[held_out]
    elif held_out is not None and config.eval_source is not None:
        key, source = "data.eval_source", config.eval_source
    rows: Iterator[Row]
    if source == ENVIRONMENT:
        rows = _read_own(config, limit, held_out is not None, key, own_rows)
    else:
        rows = itertools.islice(_read(config, seed, held_out is not None, key, source), limit)
    if not config.drop_columns:
        return rows
    return _without_columns(rows, config.drop_columns, held_out is not None, f"{key} = {source!r}")


def _without_columns(
    rows: Iterator[Row], dropped: Collection[str], may_lack: bool, origin: str
) -> Iterator[Row]:
    """Yield the rows without these columns; raise `DataError` for one that none of them has, unless
    they `may_lack` it."""
    names: dict[str, None] = {}
    for row in rows:
        names |= dict.fromkeys(row)
        yield {name: value for name, value in row.items() if name not in dropped}
    missing = next((name for name in dropped if name not in names), None)
    if names and missing is not None and not may_lack:
        near = nearest(missing, names, cutoff=0.6)
        raise DataError(
            f"data.drop_columns: no column {missing!r} in {origin}"
            + (f"; did you mean {near!r}?" if near else f"; columns there: {', '.join(names)}")
        )


def check_options(config: DataConfig) -> None:
    """Raise `DataError` for `data.options` that no source takes."""
    if config.options and not any(map(made_rows, (config.source, *config.eval_sources.values()))):
        kinds = " or ".join(f"{kind}:TASK" for kind in DATASET_SOURCES)
        raise DataError(
            f"data.options = {dict(config.options)}: only a {kinds} source, or a module:name of "
            f"yours, takes options, and data.source = {config.source!r}"
        )


def comes_from_gym(config: DataConfig) -> bool:
    """Return whether every row, those held out included, is made by reasoning_gym here."""
    made = [made_rows(source) for source in (config.source, *config.eval_sources.values())]
    return all(one is not None and one.kind == REASONING_GYM for one in made)


def _read(config: DataConfig, seed: int, held_out: bool, key: str, source: str) -> Iterator[Row]:
    if not source:
        kinds = ", ".join(f"{kind}:TASK" for kind in DATASET_SOURCES)
        raise DataError(
            f"{key} is not set; name a hub dataset, a local folder, a file "
            f"({', '.join(FILE_TYPES)}), {kinds}, a module:name of yours, or {ENVIRONMENT!r} if "
            "the [environment] brings rows"
        )
    origin = f"{key} = {source!r}"
    made = made_rows(source)
    if made:
        _refuse_parts(config, held_out, key, origin)
        request = SourceRequest(
            task=made.task, options=config.options, seed=seed, held_out=held_out, origin=origin
        )
        return _make(made, request, key)
    path = Path(source).expanduser()
    if is_file(path):
        _refuse_parts(config, held_out, key, origin)
        return read_file(path, origin, config.drop_columns)
    # An evaluation source without a split of its own has the training rows' one.
    own_split = held_out and config.eval_split is not None
    split = config.eval_split if own_split else config.split
    origin += f" ({'data.eval_split' if own_split else 'data.split'} = {split!r})"
    return read_dataset(path, source, config.config, str(split), origin, config.drop_columns)


def _read_own(
    config: DataConfig, limit: int | None, held_out: bool, key: str, own_rows: OwnRows | None
) -> Iterator[Row]:
    origin = f"{key} = {ENVIRONMENT!r}"
    if own_rows is None:
        raise DataError(
            f"{origin}: the [environment] of this configuration brings no rows; name a dataset"
        )
    _refuse_parts(config, held_out, key, origin)
    return iter(own_rows(held_out, limit))


def _make(made: MadeRows, request: SourceRequest, key: str) -> Iterator[Row]:
    source = cast(DatasetSource, DATASET_SOURCES.load(made.kind, key))
    if made.kind in DATASET_SOURCES:
        return source(request)
    return _made_by_user(source, request)


def _made_by_user(source: DatasetSource, request: SourceRequest) -> Iterator[Row]:
    """Yield the rows of a user's own code, naming its errors as such."""
    try:
        for index, row in enumerate(source(request)):
            if not isinstance(row, dict):
                raise TypeError(f"row {index} is {row!r}, and not a dict of columns")
            yield row
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{request.origin} raises {type(error).__name__}: {error}") from error


def _refuse_parts(config: DataConfig, held_out: bool, key: str, origin: str) -> None:
    """Refuse parts of a single table, which has neither splits nor configurations. What is chosen
    of `data.source` is not for another source."""
    chosen = {"data.eval_split": config.eval_split if held_out else None}
    if key == "data.source":
        split = None if config.split == "train" else config.split
        chosen = {"data.config": config.config, "data.split": split, **chosen}
    for key, value in chosen.items():
        if value is not None:
            raise DataError(
                f"{key} = {value!r}: {origin} is a single table without any; leave it out (a "
                "second source goes into data.eval_source, rows to hold out into data.eval_samples)"
            )
