"""The problems that are held out, and the rows that are then left to train on."""

import json
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from mortal_steps.config import DataConfig
from mortal_steps.config.data import ENVIRONMENT, made_rows
from mortal_steps.data.problem_files import ProblemFile, Texts, encode_json
from mortal_steps.data.rows import problems_of
from mortal_steps.data.sources import OwnRows, read_rows
from mortal_steps.errors import DataError
from mortal_steps.schedule import derive_seed
from mortal_steps.types import Problem

TRAIN, EVAL = "train", "eval"
"""Begin the ids of problems: of those trained on, and of those held out."""
ALL_HELD_OUT = (
    "the prompt of every row is also held out, which leaves no training rows. Hold out fewer "
    "(data.eval_samples), evaluate on other rows (data.eval_source, data.eval_split; in Python: "
    "eval_dataset), or train on all of them, as TRL does, with data.exclude_held_out = false. That "
    "is also right where all prompts are the same text, and the task is in another column"
)


def read_held_out(
    config: DataConfig,
    seed: int,
    *,
    may_lack_prompts: bool = False,
    are_learned: bool = False,
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
            are_learned=are_learned,
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


def hold_out(train: ProblemFile, config: DataConfig) -> list[Problem]:
    """Return `eval_samples` rows drawn from the source; the same ones whatever the run's seed."""
    count = config.eval_samples
    if count >= len(train):
        raise DataError(
            f"data.eval_samples = {count} leaves no training rows: data.source = "
            f"{config.source!r} has {len(train)}; hold out fewer, or set data.eval_source"
        )
    drawn = sorted(random.Random(derive_seed("held out")).sample(range(len(train)), count))
    return [replace(train[row], id=f"{EVAL}-{row}") for row in drawn]


def whole(prompt: str, columns: str) -> str:
    """Return what identifies a row where prompts alone do not: they may all be the same."""
    known = {name: value for name, value in json.loads(columns).items() if value is not None}
    return json.dumps([prompt, known], sort_keys=True)


class KeptRows:
    """The rows that are trained on, besides `held_out` ones, of which those with the ids `drawn`
    are rows of the same source. `same` returns what identifies the row of a prompt and columns."""

    def __init__(
        self,
        held_out: Sequence[Problem],
        drawn: Collection[str],
        same: Callable[[str, str], str],
        *,
        exclude: bool,
    ) -> None:
        self.num_shared = 0
        """Rows with a held-out prompt that are not held out themselves."""
        self._taken = {same(encode_json(one.prompt), encode_json(one.columns)) for one in held_out}
        self._drawn, self._same, self._exclude = drawn, same, exclude

    def of(self, read: ProblemFile, names: Collection[str]) -> Iterator[Texts]:
        """Yield the rows; what a row lacks of the columns in `names` is None."""
        missing = dict.fromkeys(names)
        for problem_id, prompt, columns in read.texts():
            if problem_id in self._drawn:
                continue
            if self._same(prompt, columns) in self._taken:
                self.num_shared += 1
                if self._exclude:
                    continue
            if missing:
                columns = encode_json({**missing, **json.loads(columns)})
            yield problem_id, prompt, columns


def check_not_the_same(config: DataConfig) -> None:
    """Raise `DataError` at once where one dataset is both trained on and held out."""
    if not config.exclude_held_out or config.eval_samples or made_rows(config.source):
        return
    if config.source in ("", ENVIRONMENT) or config.eval_split not in (None, config.split):
        return
    for name, source in config.eval_sources.items():
        if source == config.source:
            raise DataError(f"{_eval_origin(config, name, source)} is data.source: {ALL_HELD_OUT}")


def _eval_origin(config: DataConfig, name: str, source: str) -> str:
    if name:
        return f"data.eval_sets.{name} = {source!r}"
    if config.eval_source is not None:
        return f"data.eval_source = {source!r}"
    return f"data.eval_split = {config.eval_split!r} of {config.source!r}"
