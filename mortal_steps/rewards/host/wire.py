"""What the reward host answers: JSON, checked before anything is made of it.

Reward functions run in the process that answers, and could write to its connection themselves; a
pickle from there would run as code in whoever reads it. Texts come from models and may hold
anything: here they become what can be stored and printed, whoever they are from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from mortal_steps import errors
from mortal_steps.errors import MortalError, WorkerError
from mortal_steps.rewards.calling.calls import STRICT, CallFailure, CallScores, Outcome
from mortal_steps.rewards.texts import printable, storable

LARGEST_ANSWER = 256 * 2**20
"""Bytes; dispatch.py keeps what functions log far below."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostError:
    """A `MortalError` that ended a call in the host."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    kind: str
    """Name of its class in mortal_steps.errors."""
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class HostAnswer:
    """The answer to a request: one of the last three fields, or none of them."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    number: int
    """Of the request."""
    turns: tuple[tuple[str, ...], ...] | None = None
    outcomes: dict[str, CallScores | CallFailure] | None = None
    error: HostError | None = None


class NoAnswerError(Exception):
    """What came from the host is not an answer to the request."""


_answers = TypeAdapter(HostAnswer)


def encode_answer(answer: HostAnswer) -> bytes:
    """The answer as JSON."""
    plain = _answers.dump_python(answer, warnings=False)
    return TypeAdapter(Any).dump_json(_clean(plain))


def decode_answer(content: bytes, number: int) -> HostAnswer:
    """The answer to request `number`; raises `NoAnswerError` for anything else."""
    try:
        answer = _answers.validate_json(content)
    except ValidationError:
        raise NoAnswerError("it is no answer") from None
    if answer.number != number:
        raise NoAnswerError(f"it is numbered {answer.number} instead of {number}")
    return answer


def checked_outcomes(
    answer: HostAnswer, names: Sequence[str], num_completions: int
) -> dict[str, Outcome]:
    """The outcome of each function that was called; raises `NoAnswerError`."""
    outcomes: Mapping[str, Outcome] = answer.outcomes or {}
    if set(outcomes) != set(names):
        raise NoAnswerError(f"it is about {sorted(outcomes)} instead of {sorted(names)}")
    for outcome in outcomes.values():
        if isinstance(outcome, CallScores):
            columns = [outcome.scores, *outcome.extra.values()]
            if any(len(column) != num_completions for column in columns):
                raise NoAnswerError(f"not every column of it has {num_completions} values")
    return {name: outcomes[name] for name in names}


def told(error: Exception, trace: str) -> HostError:
    """An error as it is sent: the nearest class of MORTAL's own errors, which the receiver
    knows."""
    if not isinstance(error, MortalError):
        text = printable(f"{type(error).__name__}\n{trace}")
        return HostError(kind=WorkerError.__name__, message=text)
    kind = next(base for base in type(error).__mro__ if base.__module__ == errors.__name__)
    message = str(error) if type(error) is kind else f"{type(error).__name__}: {error}"
    return HostError(kind=kind.__name__, message=printable(message))


def raised(error: HostError) -> MortalError:
    """The error to raise in the receiver."""
    kind = getattr(errors, error.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, MortalError)):
        raise NoAnswerError(f"there is no {error.kind!r}")
    return kind(error.message)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {storable(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
