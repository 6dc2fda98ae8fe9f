"""What a run learns from, as it is read before the run begins."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from mortal_steps.data.prepared import Prepared
from mortal_steps.data.problems import read_problems
from mortal_steps.environments.plan import ProblemsPlan
from mortal_steps.orchestration.checking.data_lines import rows_in_words
from mortal_steps.orchestration.checking.own_rewards import own_rows
from mortal_steps.system.scratch import Scratch
from mortal_steps.types import Problem

READING = ".reading-"
"""Prefix of the temporary folder, among the runs, that holds the rows while they are read."""


class Problems(NamedTuple):
    """What a run learns from."""

    train: Sequence[Problem]
    held_out: Sequence[Problem]
    prepared: Prepared | None = None
    """The rows as TRL prepared them, if the run learns from rows."""


def read(
    plan: ProblemsPlan, runs_dir: Path, say: Callable[[str], None], tell: Callable[[str], None]
) -> Problems:
    """Read the problems of a run. Raises what `read_problems` raises."""
    scratch = Scratch(runs_dir.absolute(), READING)
    try:
        found = read_problems(
            *(plan.data, plan.seed, scratch, say),
            num_made=plan.num_made,
            are_learned=plan.are_learned,
            own_rows=own_rows(plan.environment),
        )
    except BaseException:
        scratch.remove()
        raise
    if plan.data.source:
        tell(f"{'data':<11}{rows_in_words(plan.data, found)}")
    return Problems(found.train, found.held_out)
