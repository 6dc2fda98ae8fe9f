"""Datasets become `Problem`s, and each step's batch a pure function of them. Imports no torch.

`read_problems` reads everything once, at the start of a run, row by row; from then on the run store
holds the problems. Their values are therefore what JSON can carry: tuples become lists, dates and
times ISO text, NaN (a missing number) None; what cannot be carried is a `DataError`.
"""

from __future__ import annotations

import datetime
import difflib
import math
import random
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from mortal_steps.config import DataConfig
from mortal_steps.data.problem_files import ProblemFile, at
from mortal_steps.data.problem_writer import ProblemWriter
from mortal_steps.data.row_text import encode_json
from mortal_steps.data.sources import Row, check_options, read_rows
from mortal_steps.errors import DataError
from mortal_steps.schedule import derive_seed, problem_indices
from mortal_steps.system.scratch import Scratch
from mortal_steps.types import Problem, Prompt

TAKEN_BY_TRL = ("prompts", "completions", "trainer_state", "log_extra", "log_metric")
"""Keyword arguments of every reward function, after which no column may be named."""

EVAL = "eval"
"""Begins the ids of held-out problems."""

TEXT_ALONE = "MORTAL trains on text alone: models get no pictures, audio or video"
OF_MEDIA = ("PIL", "torchcodec")
"""Packages whose objects are pictures, audio or video."""

WORTH_A_WORD = 100_000
"""Rows that take seconds to read; the user is told that this is going on."""

DEEPEST = 100
"""Levels of nesting in a column; the JSON of the run store cannot hold many more."""


def read_problems(
    config: DataConfig,
    seed: int,
    scratch: Scratch,
    say: Callable[[str], None] | None = None,
) -> tuple[ProblemFile, Sequence[Problem]]:
    """Training and held-out problems; the second are none when none are asked for.

    Training rows whose prompt is also held out are left out. The training problems lie in a file in
    `scratch`, and never in memory all at once; the held-out ones, which each evaluation samples
    whole, are. `seed` is the run's: reasoning_gym tasks draw their rows from it unless
    `data.options.seed` is set. `say` is told how far it is with many rows. Raises `DataError`.
    """
    check_options(config)
    rows = read_rows(config, seed, limit=config.max_samples)
    path, read = scratch.path / "rows.parquet", 0
    with ProblemWriter(path) as writer:
        for row in _checked(rows, config, "train", f"data.source = {config.source!r}"):
            writer.add(*row)
            read += 1
            if say is not None and read % WORTH_A_WORD == 0:
                say(f"reading the dataset: {read:,} rows")
    train = ProblemFile(path, keeps=scratch)
    held_out = read_held_out(config, seed) if config.eval_sources else _hold_out(train, config)
    return _without(train, held_out, config), held_out


def read_held_out(config: DataConfig, seed: int) -> list[Problem]:
    """The problems of `config.eval_sources`, set after set. Raises `DataError`."""
    checked = [
        row
        for name, source in config.eval_sources.items()
        for row in _checked(
            read_rows(config, seed, limit=config.eval_samples or None, held_out=name),
            config,
            f"{EVAL}-{name}" if name else EVAL,
            _eval_origin(config, name, source),
        )
    ]
    names = dict.fromkeys(name for _, _, columns in checked for name in columns)
    return [
        Problem(id=row, prompt=prompt, columns={name: columns.get(name) for name in names})
        for row, prompt, columns in checked
    ]


def eval_set_sizes(held_out: Iterable[Problem]) -> dict[str, int]:
    """How many problems each named set of `data.eval_sets` has, in order; empty without any. The
    ids of its problems begin with `eval-<name>-`."""
    names = (problem.id.removeprefix(f"{EVAL}-").rpartition("-")[0] for problem in held_out)
    return dict(Counter(filter(None, names)))


def load_problems(config: DataConfig, seed: int) -> tuple[list[Problem], list[Problem]]:
    """`read_problems`, with all problems in memory."""
    scratch = Scratch()
    try:
        train, held_out = read_problems(config, seed, scratch)
        return list(train), list(held_out)
    finally:
        scratch.remove()


def get_batch(
    problems: Sequence[Problem], config: DataConfig, *, batch_size: int, step: int, seed: int
) -> list[Problem]:
    """The problems that step `step` trains on; length `batch_size`."""
    indices = problem_indices(
        len(problems), batch_size=batch_size, step=step, seed=seed, shuffle=config.shuffle
    )
    return at(problems, indices)


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
    return [
        Problem(id=f"{EVAL}-{row}", prompt=problem.prompt, columns=problem.columns)
        for row, problem in zip(drawn, train.select(array("L", drawn)), strict=True)
    ]


def _without(train: ProblemFile, held_out: list[Problem], config: DataConfig) -> ProblemFile:
    """The training problems whose prompts are not held out."""
    if not held_out:
        return train
    taken = {_key(problem.prompt) for problem in held_out}
    kept = array(
        "L", (row for row, prompt in enumerate(train.prompts()) if _key(prompt) not in taken)
    )
    if not kept:
        raise DataError(
            f"data.source = {config.source!r}: every prompt is also held out, which leaves no "
            "training rows; hold out fewer (data.eval_samples) or evaluate on other rows "
            "(data.eval_source, data.eval_split)"
        )
    return train.select(kept)


def _key(prompt: Prompt) -> tuple[bool, str]:
    """Equal for equal prompts."""
    return (True, prompt) if isinstance(prompt, str) else (False, encode_json(prompt))


def _checked(
    rows: Iterator[Row], config: DataConfig, prefix: str, origin: str
) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Id `<prefix>-<row>`, prompt and columns of each row, values checked."""
    prompt_column = config.prompt_column
    names: dict[str, None] = {}
    is_text: bool | None = None
    index = -1
    for index, row in enumerate(rows):
        if prompt_column not in row:
            others = (name for other in rows for name in other)
            _check_prompt_column({**names, **row, **dict.fromkeys(others)}, prompt_column, origin)
        if not row.keys() <= names.keys():
            names |= dict.fromkeys(row)
            _check_columns(names, prompt_column, origin)
        columns = dict(row)
        prompt = columns.pop(prompt_column, None)
        if not all(map(_is_plain, columns.values())):
            columns = {
                name: as_json(value, f"{origin}, row {index}, column {name!r}")
                for name, value in columns.items()
            }
        if not (type(prompt) is str and _is_plain(prompt) and prompt.strip()):
            place = f"{origin}, row {index}, column {prompt_column!r}"
            prompt = as_json(prompt, place)
            check_prompt(prompt, place)
        if is_text is None:
            is_text = isinstance(prompt, str)
        if isinstance(prompt, str) != is_text:
            raise DataError(
                f"{origin}, row {index}: prompts are both text and chat messages; use one kind for "
                "all rows"
            )
        yield f"{prefix}-{index}", prompt, columns
    if index < 0:
        raise DataError(f"{origin}: there are no rows in it")


def _check_prompt_column(names: Iterable[str], prompt_column: str, origin: str) -> None:
    """Rows of a JSON lines file may lack a key; as in a `datasets` table, that is None."""
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


def check_prompt(prompt: Any, place: str) -> None:
    """Raise `DataError`, whose message begins with `place`, for a value that is no prompt."""
    if isinstance(prompt, str):
        if not prompt.strip():
            raise DataError(f"{place}: the prompt is empty; remove the row")
        return
    if not isinstance(prompt, list):
        raise DataError(
            f"{place}: {_shown(prompt)} is neither text nor a list of chat messages such as "
            '[{"role": "user", "content": "..."}]'
        )
    if not prompt:
        raise DataError(f"{place}: the prompt holds no messages; remove the row")
    for message in prompt:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise DataError(
                f"{place}: {_shown(message)} is no chat message; write each as "
                '{"role": "user", "content": "..."}'
            )
        _check_parts(message.get("content"), place)
    if not any(message.get("content") for message in prompt):
        raise DataError(f"{place}: every message is empty; remove the row")


def _check_parts(content: Any, place: str) -> None:
    """A message's content may be a list of parts, of which none may be a picture or the like."""
    for part in content if isinstance(content, list) else ():
        if not isinstance(part, dict) or part.get("type") != "text":
            raise DataError(
                f"{place}: {_shown(part)} is no text, and {TEXT_ALONE}; write the content of each "
                "message as text, or remove the row"
            )


def _is_plain(value: Any) -> bool:
    """Whether JSON can hold the value as it is; a quick check."""
    kind = type(value)
    if kind is str:
        return value.isascii() or _is_unicode(value)
    return kind is int or kind is bool or value is None


def _is_unicode(text: str) -> bool:
    """Whether it has no halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_json(value: Any, place: str, depth: int = 0) -> Any:
    """The value as JSON carries it to the reward functions: dates and times as ISO text, NaN and
    other missing values as None, arrays as lists. Raises `DataError` for any other."""
    if depth > DEEPEST:
        raise DataError(
            f"{place}: lists and objects within each other, more than {DEEPEST} deep; store it as "
            "text, or remove the column"
        )
    if isinstance(value, str):
        if not _is_unicode(value):
            raise DataError(f"{place}: {_shown(value)} is no valid Unicode text; repair the row")
        return value
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if math.isinf(value):
            raise DataError(f"{place}: {value} is not a number that JSON can carry; remove the row")
        return None if math.isnan(value) else value
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat() if value == value else None  # NaT of pandas
    if isinstance(value, list | tuple):
        return [as_json(item, place, depth + 1) for item in value]
    if isinstance(value, Mapping):
        return {
            as_json(str(key), place): as_json(item, place, depth + 1) for key, item in value.items()
        }
    if hasattr(value, "item") and hasattr(value, "tolist"):  # NumPy, without importing it
        return as_json(value.tolist(), place, depth + 1)
    if type(value).__name__ == "NAType":  # of pandas, without importing it
        return None
    if isinstance(value, bytes) or type(value).__module__.partition(".")[0] in OF_MEDIA:
        raise DataError(f"{place}: a {type(value).__name__}, and {TEXT_ALONE}; remove the column")
    raise DataError(
        f"{place}: a {type(value).__name__} cannot be carried as JSON; store it as text or "
        "numbers, or remove the column"
    )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
