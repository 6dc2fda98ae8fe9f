"""Rows as TRL prepares them, once: tokenized, masked, truncated, dropped or packed.

    first.json     the first row, as the user wrote it
    train.arrow    the prepared rows
    eval.arrow     the held-out ones; of several sets, a file each, by their names

TRL's own trainer prepares them, with the run's options and tokenizer, and a model of next to no
size.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mortal_steps.data.held_out import EVAL, TRAIN, eval_set_sizes
from mortal_steps.data.prepared import Preparation
from mortal_steps.errors import ConfigError, DataError, MortalError
from mortal_steps.policy.algorithms.rows.columns import Row, checked_rows, row_of
from mortal_steps.policy.algorithms.trl_hooks import TrlHooks
from mortal_steps.policy.plan import TrainerPlan
from mortal_steps.types import Problem

if TYPE_CHECKING:
    from datasets import Dataset


FIRST, SUFFIX = "first.json", ".arrow"
ROWS_AT_ONCE = 1000
PARTS = (
    *("input_ids", "prompt_ids", "completion_ids", "chosen_ids", "rejected_ids"),
    "KL_completion_ids",
)
"""Columns of tokens that TRL's trainers make."""


def prepare_rows(
    algorithm: TrlHooks,
    plan: TrainerPlan,
    train: Sequence[Problem],
    held_out: Sequence[Problem],
    *,
    small_model: Callable[[Path], Any],
    columns: Callable[[Row], Sequence[str]],
    takes: str,
    folder: Path,
) -> Preparation:
    """Write the prepared rows to `folder`, and return what came of them. `small_model` makes the
    model that they are prepared with. `columns` returns those that the trainer looks for in rows
    with this first one, and `takes` says it in words. Raises `ConfigError` for options, and
    `DataError` for rows, that TRL does not take."""
    # Imported where used: imports torch and TRL.
    from mortal_steps.policy.algorithms.stepping.options import build_options
    from mortal_steps.policy.starting_model.prompt_lengths import tokenizer_of

    folder.mkdir(parents=True, exist_ok=True)
    (folder / FIRST).write_text(json.dumps(row_of(train[0]), ensure_ascii=False), encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="preparing-") as name:
        scratch = Path(name)
        arguments = build_options(
            plan, algorithm, num_steps=1, output_dir=scratch, use_cpu=True, autocast=False
        )
        arguments.model_init_kwargs = None  # of the run's own model
        arguments.precompute_ref_log_probs = False  # by that, too: the actor does it
        try:
            sets = {
                name: dataset_of(problems, scratch / name, columns(row_of(problems[0])))
                for name, problems in {TRAIN: train, **sets_of(held_out)}.items()
            }
            held = {name: rows for name, rows in sets.items() if name != TRAIN}
            trainer = algorithm.trainer_class()(
                model=small_model(scratch / "model"),
                args=arguments,
                train_dataset=sets[TRAIN],
                eval_dataset=held.get(EVAL, held) or None,
                processing_class=tokenizer_of(plan.model),
            )
        except (OSError, MortalError):
            raise
        except Exception as error:  # a chat template may raise anything
            error, there = _cause_of(error), ", ".join(row_of(train[0]))
            raise DataError(
                f"algorithm.type = {algorithm.type!r}: TRL cannot prepare these rows, with the "
                f"columns {there} ({type(error).__name__}: {error}); it takes {takes}"
            ) from error
        _write(trainer, folder)
        return _came_of(trainer.train_dataset, trainer.processing_class)


def _cause_of(error: Exception) -> Exception:
    """Return what went wrong where datasets read the rows, or the error itself."""
    from datasets.exceptions import DatasetGenerationError

    cause = error.__cause__ if isinstance(error, DatasetGenerationError) else None
    return cause if isinstance(cause, Exception) else error


def _write(trainer: Any, folder: Path) -> None:
    """Write the rows that TRL's trainer has prepared. Raises `DataError` if none is left."""
    evaluated = trainer.eval_dataset
    prepared = evaluated if isinstance(evaluated, dict) else {EVAL: evaluated}
    if not len(trainer.train_dataset):
        raise DataError(
            "no row is left to train on: all of them were dropped where TRL prepared them, "
            "which it does with rows that hold no token of the loss; raise "
            "training.trl.max_length"
        )
    for name, rows in {TRAIN: trainer.train_dataset, **prepared}.items():
        if rows is not None:
            write_rows(rows, folder / f"{name}{SUFFIX}")


def _came_of(rows: Dataset, tokenizer: Any) -> Preparation:
    parts = [name for name in PARTS if name in rows.column_names]
    first = rows[0]
    texts = {
        "row" if name == "input_ids" else name.removesuffix("_ids"): tokenizer.decode(first[name])
        for name in parts
    }
    if "labels" in first:
        labelled = zip(first["input_ids"], first["labels"], strict=True)
        texts["learned"] = tokenizer.decode([token for token, label in labelled if label >= 0])
    return Preparation(num_rows=len(rows), first=texts, longest=_longest(rows, parts))


def _longest(rows: Dataset, parts: Sequence[str]) -> int:
    """Return the tokens of the longest of these columns' values; no row becomes a Python object."""
    import pyarrow.compute

    tables = rows.select_columns(list(parts)).with_format("arrow").iter(ROWS_AT_ONCE)
    lengths = (
        pyarrow.compute.max(pyarrow.compute.list_value_length(table[name])).as_py()
        for table in tables
        for name in parts
    )
    return max(lengths, default=0)


def open_prepared(folder: Path) -> dict[str, Dataset]:
    """Map the prepared rows of a folder into memory, by the names of their sets: `train` and, if
    rows are held out, `eval` or the names of `data.eval_sets`."""
    from datasets import Dataset

    files = {path.stem: path for path in sorted(folder.glob(f"*{SUFFIX}"))}
    return {name: Dataset.from_file(str(path)) for name, path in files.items()}


def first_row(folder: Path) -> dict[str, Any]:
    row: dict[str, Any] = json.loads((folder / FIRST).read_text(encoding="utf-8"))
    return row


def sets_of(held_out: Sequence[Problem]) -> Mapping[str, Sequence[Problem]]:
    """Return the held-out rows by the names of their sets."""
    if not held_out:
        return {}
    sizes, found, first = eval_set_sizes(held_out), {}, 0
    for name, size in sizes.items():
        found[name] = held_out[first : first + size]
        first += size
    return found or {EVAL: held_out}


def dataset_of(problems: Sequence[Problem], folder: Path, columns: Sequence[str] = ()) -> Dataset:
    """Write the rows, checked in these columns, into a dataset. `datasets` takes the types of its
    columns from the first rows; where later ones do not fit, such as messages with tool calls, they
    are taken from all. Raises `DataError` as `checked_rows` does."""
    from datasets.exceptions import DatasetGenerationError

    try:
        return _written(problems, folder / "first", columns)
    except DatasetGenerationError:
        return _written(problems, folder / "all", columns, _types_of_all(problems))


def _written(
    problems: Sequence[Problem], folder: Path, columns: Sequence[str], types: Any = None
) -> Dataset:
    """Write the rows with these types, by default those of the first ones. Raises `DataError` for a
    row that is refused, and `DatasetGenerationError` for one of other types."""
    from datasets import Dataset
    from datasets.exceptions import DatasetGenerationError

    given = {"problems": problems, "columns": columns, "first": row_of(problems[0])}
    try:
        return Dataset.from_generator(
            checked_rows, features=types, gen_kwargs=given, cache_dir=str(folder)
        )
    except DatasetGenerationError as error:
        if isinstance(error.__cause__, DataError):
            raise error.__cause__ from None
        raise


def _types_of_all(problems: Sequence[Problem]) -> Any:
    """Return the types of the columns of all rows; of a message, all of its parts. Raises
    `DataError` for a column that has none."""
    import pyarrow
    from datasets import Features

    found = None
    for first in range(0, len(problems), ROWS_AT_ONCE):
        rows = [row_of(each) for each in problems[first : first + ROWS_AT_ONCE]]
        names = dict.fromkeys(name for row in rows for name in row)
        for name in names:
            try:
                schema = pyarrow.table({name: [row.get(name) for row in rows]}).schema
                both = [found or schema, schema]
                found = pyarrow.unify_schemas(both, promote_options="permissive")
            except (pyarrow.ArrowException, OverflowError) as error:
                raise DataError(
                    f"column {name!r}: its values are of no one type, as the columns of TRL's "
                    f"tables are ({error}); convert them, or leave the column out with "
                    f"data.drop_columns = [{name!r}]"
                ) from error
    return Features.from_arrow_schema(found)


def write_rows(rows: Dataset, path: Path) -> None:
    """Write a dataset as one file, as `Dataset.from_file` opens it."""
    import pyarrow

    whole = rows.with_format("arrow")
    with pyarrow.OSFile(str(path), "wb") as file:
        writer = None
        for table in whole.iter(ROWS_AT_ONCE):
            schema = _without_fingerprint(table.schema)
            writer = writer or pyarrow.ipc.new_stream(file, schema)
            # Rows that were chosen from others lie each in a piece of its own, which costs whoever
            # opens the file ten kilobytes a row.
            writer.write_table(table.cast(schema).combine_chunks())
        if writer is None:
            raise ConfigError(f"the set {path.stem!r} has no rows left after TRL prepared them")
        writer.close()


def _without_fingerprint(schema: Any) -> Any:
    """Return the schema of a dataset without what `datasets` names its cache by: the same rows are
    the same file."""
    about = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    about.pop("fingerprint", None)
    return schema.with_metadata({b"huggingface": json.dumps(about, sort_keys=True).encode()})
