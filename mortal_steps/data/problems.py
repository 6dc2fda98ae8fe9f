"""Datasets become `Problem`s, and each step's batch a pure function of them. Imports no torch.

`read_problems` reads everything once, at the start of a run, row by row; from then on the run store
holds the problems. Their values are therefore what JSON can carry: tuples become lists, dates and
times ISO text, NaN (a missing number) None; what cannot be carried is a `DataError`.
"""

import difflib
import json
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from mortal_steps.config import DataConfig
from mortal_steps.data.problem_files import (
    SUFFIX,
    ProblemFile,
    Texts,
    encode_json,
    write_texts,
)
from mortal_steps.data.sources import OwnRows, Row, check_options, read_rows
from mortal_steps.data.values import NO_PROMPT, as_json, check_prompt, is_plain
from mortal_steps.errors import DataError
from mortal_steps.schedule import derive_seed, problem_indices
from mortal_steps.system.scratch import Scratch
from mortal_steps.types import Problem

TAKEN_BY_TRL = ("prompts", "completions", "trainer_state", "log_extra", "log_metric")
"""Keyword arguments of every reward function, after which no column may be named."""

EVAL = "eval"
"""Begins the ids of held-out problems."""

WORTH_A_WORD = 100_000
"""Rows that take seconds to read; the user is told that this is going on."""


def read_problems(
    config: DataConfig,
    seed: int,
    scratch: Scratch,
    report: Callable[[str], None] | None = None,
    *,
    num_made: int | None = None,
    own_rows: OwnRows | None = None,
) -> tuple[ProblemFile, Sequence[Problem]]:
    """Training and held-out problems; the second are none when none are asked for.

    Training rows whose prompt is also held out are left out. Where environments give the prompts,
    `num_made` is how many rows are made if there is no source; then a row may lack a prompt, and is
    left out if all of it is also held out. `own_rows` returns those that the environment brings, if
    it does. The training problems are in a file in
    `scratch`, and never in memory all at once; the held-out ones, which each evaluation samples
    whole, are. `seed` is the run's: reasoning_gym tasks draw their rows from it unless
    `data.options.seed` is set. `report` is
    called with how far it is, with many rows. Raises `DataError`.
    """
    check_options(config)
    names: dict[str, None] = {}
    everything = scratch.path / f"rows{SUFFIX}"
    write_texts(everything, _read_train(config, seed, names, report, num_made, own_rows))
    read = ProblemFile(everything, keeps=scratch)
    held_out: list[Problem]
    if config.eval_sources:
        lacks = num_made is not None
        held_out = read_held_out(config, seed, may_lack_prompts=lacks, own_rows=own_rows)
    else:
        held_out = _hold_out(read, config)
    lacking = len(read[0].columns) < len(names)
    if not held_out and not lacking:
        return read, held_out
    path = scratch.path / f"train{SUFFIX}"
    same = _whole if num_made is not None else lambda prompt, columns: prompt
    write_texts(path, _without(read, held_out, names if lacking else (), same))
    train = ProblemFile(path, keeps=scratch)
    if not train:
        raise DataError(
            f"data.source = {config.source!r}: every prompt is also held out, which leaves no "
            "training rows; hold out fewer (data.eval_samples) or evaluate on other rows "
            "(data.eval_source, data.eval_split)"
        )
    return train, held_out


def _read_train(
    config: DataConfig,
    seed: int,
    names: dict[str, None],
    report: Callable[[str], None] | None,
    num_made: int | None,
    own_rows: OwnRows | None,
) -> Iterator[Texts]:
    """Yield training rows with the columns known by then, in one order; `names` grows by them."""
    made = num_made if not config.source and own_rows is None else None
    rows: Iterator[Row] = iter([{}] * (made or 0))
    if made is None:
        rows = read_rows(config, seed, limit=config.max_samples, own_rows=own_rows)
    origin, lacks = f"data.source = {config.source!r}", num_made is not None
    problems = problems_of(rows, config.prompt_column, "train", origin, may_lack_prompts=lacks)
    for count, row in enumerate(problems, start=1):
        names |= dict.fromkeys(row.columns)
        columns = {name: row.columns.get(name) for name in names}
        yield row.id, encode_json(row.prompt), encode_json(columns)
        if report is not None and count % WORTH_A_WORD == 0:
            report(f"reading the dataset: {count:,} rows")


def read_held_out(
    config: DataConfig,
    seed: int,
    *,
    may_lack_prompts: bool = False,
    own_rows: OwnRows | None = None,
) -> list[Problem]:
    """Return the problems of `config.eval_sources`, set after set. Raises `DataError`."""
    problems = [
        problem
        for name, source in config.eval_sources.items()
        for problem in problems_of(
            read_rows(
                config, seed, limit=config.eval_samples or None, held_out=name, own_rows=own_rows
            ),
            config.prompt_column,
            f"{EVAL}-{name}" if name else EVAL,
            _eval_origin(config, name, source),
            may_lack_prompts=may_lack_prompts,
        )
    ]
    names = dict.fromkeys(name for problem in problems for name in problem.columns)
    return [
        replace(problem, columns={name: problem.columns.get(name) for name in names})
        for problem in problems
    ]


def eval_set_sizes(held_out: Iterable[Problem]) -> dict[str, int]:
    """Return how many problems each named set of `data.eval_sets` has, in order; empty without any.
    The ids of its problems begin with `eval-<name>-`."""
    names = (problem.id.removeprefix(f"{EVAL}-").rpartition("-")[0] for problem in held_out)
    return dict(Counter(filter(None, names)))


def load_problems(
    config: DataConfig,
    seed: int,
    *,
    num_made: int | None = None,
    own_rows: OwnRows | None = None,
) -> tuple[list[Problem], list[Problem]]:
    scratch = Scratch()
    try:
        train, held_out = read_problems(config, seed, scratch, num_made=num_made, own_rows=own_rows)
        return list(train), list(held_out)
    finally:
        scratch.remove()


def get_batch(
    problems: Sequence[Problem], config: DataConfig, *, batch_size: int, step: int, seed: int
) -> list[Problem]:
    """Return the problems that step `step` trains on; length `batch_size`."""
    indices = problem_indices(
        len(problems), batch_size=batch_size, step=step, seed=seed, shuffle=config.shuffle
    )
    return [problems[index] for index in indices]


def _eval_origin(config: DataConfig, name: str, source: str) -> str:
    if name:
        return f"data.eval_sets.{name} = {source!r}"
    if config.eval_source is not None:
        return f"data.eval_source = {source!r}"
    return f"data.eval_split = {config.eval_split!r} of {config.source!r}"


def _hold_out(train: ProblemFile, config: DataConfig) -> list[Problem]:
    """`eval_samples` rows drawn from the source; the same ones whatever the run's seed."""
    count = config.eval_samples
    if count >= len(train):
        raise DataError(
            f"data.eval_samples = {count} leaves no training rows: data.source = "
            f"{config.source!r} has {len(train)}; hold out fewer, or set data.eval_source"
        )
    drawn = sorted(random.Random(derive_seed("held out")).sample(range(len(train)), count))
    return [replace(train[row], id=f"{EVAL}-{row}") for row in drawn]


def _whole(prompt: str, columns: str) -> str:
    """Return what identifies a row where prompts alone do not: they may all be the same."""
    known = {name: value for name, value in json.loads(columns).items() if value is not None}
    return json.dumps([prompt, known], sort_keys=True)


def _without(
    read: ProblemFile,
    held_out: Sequence[Problem],
    names: Collection[str],
    same: Callable[[str, str], str],
) -> Iterator[Texts]:
    """Yield the rows that are not held out, of which `same` returns what identifies them; what a
    row lacks of the columns in `names` is None."""
    taken = {same(encode_json(one.prompt), encode_json(one.columns)) for one in held_out}
    missing = dict.fromkeys(names)
    for problem_id, prompt, columns in read.texts():
        if same(prompt, columns) not in taken:
            if missing:
                columns = encode_json({**missing, **json.loads(columns)})
            yield problem_id, prompt, columns


def problems_of(
    rows: Iterator[Row],
    prompt_column: str,
    prefix: str,
    origin: str,
    *,
    may_lack_prompts: bool = False,
) -> Iterator[Problem]:
    """Yield each row as a problem with the id `<prefix>-<row>`, its values checked; raises
    `DataError`. With `may_lack_prompts`, a row without one has `NO_PROMPT`."""
    names: dict[str, None] = {}
    is_text: bool | None = None
    index = -1
    for index, row in enumerate(rows):
        if may_lack_prompts and prompt_column == "prompt" and row.get("prompt") is None:
            row = {**row, "prompt": NO_PROMPT}
        if prompt_column not in row:
            others = (name for other in rows for name in other)
            _check_prompt_column({**names, **row, **dict.fromkeys(others)}, prompt_column, origin)
        if not row.keys() <= names.keys():
            names |= dict.fromkeys(row)
            _check_columns(names, prompt_column, origin)
        columns = dict(row)
        prompt = columns.pop(prompt_column, None)
        if not all(map(is_plain, columns.values())):
            columns = {
                name: as_json(value, f"{origin}, row {index}, column {name!r}")
                for name, value in columns.items()
            }
        if not (type(prompt) is str and is_plain(prompt) and prompt.strip()):
            cell = f"{origin}, row {index}, column {prompt_column!r}"
            prompt = as_json(prompt, cell)
            if not (may_lack_prompts and prompt == NO_PROMPT):
                check_prompt(prompt, cell)
        if is_text is None:
            is_text = isinstance(prompt, str)
        if isinstance(prompt, str) != is_text:
            raise DataError(
                f"{origin}, row {index}: prompts are both text and chat messages; use one kind for "
                "all rows"
            )
        yield Problem(id=f"{prefix}-{index}", prompt=prompt, columns=columns)
    if index < 0:
        raise DataError(f"{origin}: there are no rows in it")


def _check_prompt_column(names: Iterable[str], prompt_column: str, origin: str) -> None:
    """Raise `DataError` where no row has the column of prompts. Rows of a JSON lines file may lack
    it, which is None, as in a `datasets` table."""
    names = list(names)
    if prompt_column not in names:
        near = difflib.get_close_matches(prompt_column, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise DataError(
            f"data.prompt_column = {prompt_column!r}: no such column in {origin}{hint}; "
            f"columns there: {', '.join(names)}"
        )


def _check_columns(names: Iterable[str], prompt_column: str, origin: str) -> None:
    if prompt_column != "prompt" and "prompt" in names:
        raise DataError(
            f"data.prompt_column = {prompt_column!r}: {origin} has a column 'prompt' besides, and "
            "both would be the prompt; use that one, or rename or remove it"
        )
    for name in names:
        as_json(name, f"{origin}, the name of a column")
        if name in TAKEN_BY_TRL:
            raise DataError(
                f"{origin}: its column {name!r} has the name of an argument that every reward "
                "function is given; rename it"
            )
