"""Datasets become `Problem`s, and each step's batch a pure function of them. Imports no torch.

`load_problems` reads everything once, at the start of a run; from then on the run store holds the
problems. Their values are therefore what JSON can carry: tuples become lists, dates and times ISO
text, NaN (a missing number) None; what cannot be carried is a `DataError`.
"""

from __future__ import annotations

import datetime
import difflib
import hashlib
import json
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from mortal_steps.config import DataConfig
from mortal_steps.data.sources import GYM, Row, read_rows
from mortal_steps.errors import DataError
from mortal_steps.schedule import derive_seed, problem_indices
from mortal_steps.types import Problem

TAKEN_BY_TRL = ("prompts", "completions", "trainer_state", "log_extra", "log_metric")
"""Keyword arguments of every reward function; no column may have such a name."""

DEEPEST = 100
"""Levels of nesting in a column; the JSON of the run store ends somewhere beyond."""


def load_problems(config: DataConfig, seed: int) -> tuple[list[Problem], list[Problem]]:
    """Training and held-out problems; the second list is empty when none are asked for.

    Training rows whose prompt is also held out are left out. `seed` is the run's: reasoning_gym
    tasks draw their rows from it unless `data.options.seed` is set. Raises `DataError`.
    """
    _check_options(config)
    rows = read_rows(config, seed, limit=config.max_samples)
    train = _problems(rows, config.prompt_column, "train", f"data.source = {config.source!r}")
    if config.eval_source is not None or config.eval_split is not None:
        rows = read_rows(config, seed, limit=config.eval_samples or None, held_out=True)
        held_out = _problems(rows, config.prompt_column, "eval", _eval_origin(config))
    else:
        held_out = _hold_out(train, config)
    return _without(train, held_out, config), held_out


def get_batch(
    problems: Sequence[Problem], config: DataConfig, *, batch_size: int, step: int, seed: int
) -> list[Problem]:
    """The problems that step `step` trains on; length `batch_size`."""
    indices = problem_indices(
        len(problems), batch_size=batch_size, step=step, seed=seed, shuffle=config.shuffle
    )
    return [problems[index] for index in indices]


def dataset_fingerprint(problems: Sequence[Problem]) -> str:
    """sha256 over ids, prompts and columns, hexadecimal."""
    digest = hashlib.sha256()
    for problem in problems:
        row = [problem.id, problem.prompt, dict(problem.columns)]
        digest.update(json.dumps(row, sort_keys=True, separators=(",", ":")).encode() + b"\n")
    return digest.hexdigest()


def _check_options(config: DataConfig) -> None:
    sources = (config.source, config.eval_source or "")
    if config.options and not any(source.startswith(GYM) for source in sources):
        raise DataError(
            f"data.options = {dict(config.options)}: only a {GYM}TASK source takes options, and "
            f"data.source = {config.source!r}"
        )


def _eval_origin(config: DataConfig) -> str:
    if config.eval_source is not None:
        return f"data.eval_source = {config.eval_source!r}"
    return f"data.eval_split = {config.eval_split!r} of {config.source!r}"


def _hold_out(train: list[Problem], config: DataConfig) -> list[Problem]:
    """`eval_samples` rows drawn from the source; the same ones whatever the run's seed."""
    count = config.eval_samples
    if count >= len(train):
        raise DataError(
            f"data.eval_samples = {count} leaves no training rows: data.source = "
            f"{config.source!r} has {len(train)}; hold out fewer, or set data.eval_source"
        )
    drawn = random.Random(derive_seed("held out")).sample(train, count)
    return [
        Problem(id=f"eval-{_row(problem)}", prompt=problem.prompt, columns=problem.columns)
        for problem in sorted(drawn, key=_row)
    ]


def _row(problem: Problem) -> int:
    return int(problem.id.rpartition("-")[2])


def _without(train: list[Problem], held_out: list[Problem], config: DataConfig) -> list[Problem]:
    """The training problems whose prompt is not held out."""
    prompts = {json.dumps(problem.prompt) for problem in held_out}
    kept = [problem for problem in train if json.dumps(problem.prompt) not in prompts]
    if not kept:
        raise DataError(
            f"data.source = {config.source!r}: every prompt is also held out, which leaves no "
            "training rows; hold out fewer (data.eval_samples) or evaluate on other rows "
            "(data.eval_source, data.eval_split)"
        )
    return kept


def _problems(rows: list[Row], prompt_column: str, prefix: str, origin: str) -> list[Problem]:
    """Checked problems with ids `<prefix>-<row>` and the same columns throughout."""
    if not rows:
        raise DataError(f"{origin}: there are no rows in it")
    # Rows of a JSON lines file may lack a key; as in a `datasets` table, that is None.
    names = list(dict.fromkeys(name for row in rows for name in row))
    _check_columns(names, prompt_column, origin)
    problems = []
    for index, row in enumerate(rows):
        place = f"{origin}, row {index}"
        columns = {
            name: _jsonable(row.get(name), f"{place}, column {name!r}")
            for name in names
            if name != prompt_column
        }
        prompt = _jsonable(row.get(prompt_column), f"{place}, column {prompt_column!r}")
        _check_prompt(prompt, f"{place}, column {prompt_column!r}")
        problems.append(Problem(id=f"{prefix}-{index}", prompt=prompt, columns=columns))
        if isinstance(prompt, str) != isinstance(problems[0].prompt, str):
            raise DataError(
                f"{place}: prompts are both text and chat messages; use one kind for all rows"
            )
    return problems


def _check_columns(names: list[str], prompt_column: str, origin: str) -> None:
    if prompt_column not in names:
        near = difflib.get_close_matches(prompt_column, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise DataError(
            f"data.prompt_column = {prompt_column!r}: no such column in {origin}{hint}; "
            f"columns there: {', '.join(names)}"
        )
    if prompt_column != "prompt" and "prompt" in names:
        raise DataError(
            f"data.prompt_column = {prompt_column!r}: {origin} has a column 'prompt' besides, and "
            "both would be the prompt; use that one, or rename or remove it"
        )
    for name in names:
        if name in TAKEN_BY_TRL:
            raise DataError(
                f"{origin}: its column {name!r} has the name of an argument that every reward "
                "function is given; rename it"
            )


def _check_prompt(prompt: Any, place: str) -> None:
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
    if not any(message.get("content") for message in prompt):
        raise DataError(f"{place}: every message is empty; remove the row")


def _jsonable(value: Any, place: str, depth: int = 0) -> Any:
    """The value as JSON carries it to the reward functions, or a `DataError`."""
    if depth > DEEPEST:
        raise DataError(
            f"{place}: lists and objects within each other, more than {DEEPEST} deep; store it as "
            "text, or remove the column"
        )
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise DataError(f"{place}: {_shown(value)} is no valid Unicode text; repair the row")
        return value
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if math.isinf(value):
            raise DataError(f"{place}: {value} is not a number that JSON can carry; remove the row")
        return None if math.isnan(value) else value
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return [_jsonable(item, place, depth + 1) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item, place, depth + 1) for key, item in value.items()}
    if hasattr(value, "item") and hasattr(value, "tolist"):  # NumPy, without importing it
        return _jsonable(value.tolist(), place, depth + 1)
    raise DataError(
        f"{place}: a {type(value).__name__} cannot be carried as JSON; store it as text or "
        "numbers, or remove the column"
    )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
