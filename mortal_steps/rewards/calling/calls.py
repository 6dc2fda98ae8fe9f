"""The arguments of a call of a reward function, and its result: scores or a failure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import ConfigDict

from mortal_steps.hosts.answers import STRICT
from mortal_steps.rewards.base import TrainerState
from mortal_steps.system.texts import cut, one_line, storable
from mortal_steps.types import Completion, FailureKind, GeneratedGroup, Prompt

LONGEST_NAME = 200
LONGEST_VALUE = 100_000
"""Characters of the name of a metric or column, and of a text in a logged column."""


def number_of(value: Any) -> float | None:
    """Return what torch takes for a number as a float: of Python, NumPy or torch, a Fraction, a
    Decimal; None if it is no number."""
    try:
        value = value.item() if hasattr(value, "item") else value
        is_number = hasattr(value, "__float__") or hasattr(value, "__index__")
        return float(value) if is_number else None
    except (ValueError, TypeError, ArithmeticError, RuntimeError):  # an array of several; 1e400
        return None


def plain_value(value: Any) -> Plain:
    """Return a logged value as plain Python, as a user's types are unknown outside; None for a
    number that JSON lacks (nan, infinity)."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    text = str.__str__(value) if isinstance(value, str) else str(value)
    return storable(cut(text, LONGEST_VALUE))


def short_name(name: str) -> str:
    return one_line(str(name), LONGEST_NAME)


def shown(value: Any) -> str:
    return f"{one_line(repr(value), 80)} ({type(value).__name__})"


NOT_FROM_COLUMNS = ("prompt", "completion", "completion_ids")
"""Columns that TRL does not pass on, because it has arguments of its own with these names."""

Plain = str | bool | int | float | None
"""A value of a logged column."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallArguments:
    """The arguments with which functions are called; picklable."""

    by_name: Mapping[str, Any]
    """Keyword arguments; each list has one entry per completion. Those of a problem are one object
    as long as no function is called (`rows`)."""
    problem_ids: Sequence[str]
    """The problem of each completion."""
    prompt_ids: Sequence[Sequence[int]] | None = None
    """Token ids of the prompt of each completion, for a teacher; None for functions, which TRL
    gives none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallScores:
    """The result of a function that answered."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    scores: Sequence[float | None]
    """One per completion; None where it abstained."""
    metrics: Mapping[str, Sequence[float]]
    """What it reported through `log_metric`, by name."""
    extra: Mapping[str, Sequence[Plain]]
    """What it reported through `log_extra`, by column."""
    teacher_logprobs: Sequence[str | None] = ()
    """What a teacher said of the tokens of each completion: packed `TokenLogprobs` in base64."""
    seconds: float = 0.0
    """How long the call took."""
    changed_arguments: bool = False
    """Whether it left the lists that it was given otherwise than it found them, as far as another
    function may see that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallFailure:
    """The failure of a function. `function <name> <message>` is a sentence."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    kind: FailureKind
    message: str
    """One line, such as `raised KeyError: 'answer'`."""
    remedy: str
    """A sentence on what to do."""
    place: str = ""
    """File and line of the function's code where it raised an error, if that is known."""
    trace: str = ""
    """Where in the function it failed, if that is known."""
    seconds: float = 0.0
    """How long the call took."""


Outcome = CallScores | CallFailure


def arguments_of(
    groups: Sequence[GeneratedGroup], trainer_state: TrainerState, *, of_prompts: bool = False
) -> CallArguments:
    """Return TRL's arguments for these groups, without the log functions, and without
    `completion_ids` for completions from a file; with token ids `of_prompts` for a teacher."""
    rows = [(group, completion) for group in groups for completion in group.completions]
    columns = [name for name in rows[0][0].problem.columns if name not in NOT_FROM_COLUMNS]
    by_name = {
        "prompts": [_asked(group.problem.prompt, completion) for group, completion in rows],
        "completions": [
            completion_of(group.problem.prompt, completion) for group, completion in rows
        ],
        **{name: [group.problem.columns[name] for group, _ in rows] for name in columns},
        "trainer_state": trainer_state,
    }
    if all(completion.token_ids or not completion.text for _, completion in rows):
        by_name["completion_ids"] = [list(completion.token_ids) for _, completion in rows]
    prompt_ids = None
    if of_prompts:
        prompt_ids = [made.prompt_ids or group.prompt_ids for group, made in rows]
    return CallArguments(
        by_name=by_name,
        problem_ids=[group.problem.id for group, _ in rows],
        prompt_ids=prompt_ids,
    )


def _asked(prompt: Prompt, completion: Completion) -> Prompt:
    if completion.prompt is None:
        return prompt
    return [dict(message) for message in completion.prompt]


def completion_of(prompt: Prompt, completion: Completion) -> str | list[dict[str, Any]]:
    """Return a completion as TRL has it: text, or the messages that follow those of a chat."""
    if isinstance(prompt, str):
        return completion.text
    alone = completion.message or {"role": "assistant", "content": completion.text}
    return [dict(message) for message in completion.messages or [alone]]
