"""Datasets become `Problem`s, and each step's batch a pure function of them. Imports no torch.

`read_problems` reads everything once, at the start of a run, row by row; from then on the run store
holds the problems. Their values are therefore what JSON can carry: tuples become lists, dates and
times ISO text, NaN (a missing number) None; what cannot be carried is a `DataError`.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from mortal_steps.config import DataConfig
from mortal_steps.data.held_out import (
    ALL_HELD_OUT,
    EVAL,
    TRAIN,
    KeptRows,
    check_not_the_same,
    hold_out,
    read_held_out,
    whole,
)
from mortal_steps.data.problem_files import (
    SUFFIX,
    ProblemFile,
    Texts,
    encode_json,
    write_texts,
)
from mortal_steps.data.rows import problems_of
from mortal_steps.data.sources import OwnRows, Row, check_options, read_rows
from mortal_steps.errors import DataError
from mortal_steps.schedule import problem_indices
from mortal_steps.system.scratch import Scratch
from mortal_steps.types import Problem

WORTH_A_WORD = 100_000
"""Rows that take seconds to read; the user is told that this is going on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadProblems:
    """A run's problems, and what became of the rows of its source."""

    train: Sequence[Problem]
    held_out: Sequence[Problem]
    """Empty when none are asked for."""
    num_rows: int
    """Rows of `data.source`."""
    num_drawn: int
    """Rows of these that `data.eval_samples` holds out."""
    num_shared: int
    """Other rows of these whose prompt is also held out; `data.exclude_held_out` says whether they
    are left out of training."""


def read_problems(
    config: DataConfig,
    seed: int,
    scratch: Scratch,
    report: Callable[[str], None] | None = None,
    *,
    num_made: int | None = None,
    are_learned: bool = False,
    own_rows: OwnRows | None = None,
) -> ReadProblems:
    """Read training and held-out problems.

    With `data.exclude_held_out`, training rows whose prompt is also held out are left out. Where
    environments give the prompts, `num_made` is how many rows are made if there is no source; then
    a row may lack a prompt, and is left out if all of it is also held out. So may each where rows
    `are_learned`, whatever others have. `own_rows` returns those
    that the environment brings, if it does. The training problems are in a file in `scratch`, and
    never in memory all at once; the held-out ones, which each evaluation samples whole, are. `seed`
    is the run's: reasoning_gym tasks draw their rows from it unless `data.options.seed` is set.
    `report` is called with how far it is, with many rows. Raises `DataError`.
    """
    check_options(config)
    check_not_the_same(config)
    names: dict[str, None] = {}
    everything = scratch.path / f"rows{SUFFIX}"
    train_rows = _read_train(config, seed, names, report, num_made, own_rows, are_learned)
    write_texts(everything, train_rows)
    read = ProblemFile(everything, keeps=scratch)
    held_out: list[Problem]
    if config.eval_sources:
        lacks = num_made is not None
        held_out = read_held_out(
            config, seed, may_lack_prompts=lacks, are_learned=are_learned, own_rows=own_rows
        )
        drawn: Collection[str] = ()
    else:
        held_out = hold_out(read, config)
        drawn = {problem.id.replace(EVAL, TRAIN, 1) for problem in held_out}
    same = whole if num_made is not None else lambda prompt, columns: prompt
    kept = KeptRows(held_out, drawn, same, exclude=config.exclude_held_out)
    lacking = len(read[0].columns) < len(names)
    train = read
    if held_out or lacking:
        path = scratch.path / f"train{SUFFIX}"
        write_texts(path, kept.of(read, names if lacking else ()))
        train = ProblemFile(path, keeps=scratch)
    if not train:
        raise DataError(f"data.source = {config.source!r}: {ALL_HELD_OUT}")
    return ReadProblems(
        train=train,
        held_out=held_out,
        num_rows=len(read),
        num_drawn=len(drawn),
        num_shared=kept.num_shared,
    )


def _read_train(
    config: DataConfig,
    seed: int,
    names: dict[str, None],
    report: Callable[[str], None] | None,
    num_made: int | None,
    own_rows: OwnRows | None,
    are_learned: bool,
) -> Iterator[Texts]:
    """Yield training rows with the columns known by then, in one order; `names` grows by them."""
    made = num_made if not config.source and own_rows is None else None
    rows: Iterator[Row] = iter([{}] * (made or 0))
    if made is None:
        rows = read_rows(config, seed, limit=config.max_samples, own_rows=own_rows)
    origin, lacks = f"data.source = {config.source!r}", num_made is not None
    problems = problems_of(
        *(rows, config.prompt_column, TRAIN, origin),
        may_lack_prompts=lacks,
        are_learned=are_learned,
    )
    for count, row in enumerate(problems, start=1):
        names |= dict.fromkeys(row.columns)
        columns = {name: row.columns.get(name) for name in names}
        yield row.id, encode_json(row.prompt), encode_json(columns)
        if report is not None and count % WORTH_A_WORD == 0:
            report(f"reading the dataset: {count:,} rows")


def load_problems(
    config: DataConfig,
    seed: int,
    *,
    num_made: int | None = None,
    are_learned: bool = False,
    own_rows: OwnRows | None = None,
) -> tuple[list[Problem], list[Problem]]:
    scratch = Scratch()
    try:
        found = read_problems(
            *(config, seed, scratch),
            num_made=num_made,
            are_learned=are_learned,
            own_rows=own_rows,
        )
        return list(found.train), list(found.held_out)
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
