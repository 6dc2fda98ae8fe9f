"""What a host answers: JSON, checked before anything is made of it.

Code of users runs in the process that answers, and could write to its connection itself; a pickle
from there would run as code in whoever reads it. Texts may come from models and hold anything: here
they become what can be stored and printed.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from mortal_steps import errors
from mortal_steps.errors import MortalError, WorkerError
from mortal_steps.system.texts import printable, storable

LARGEST_ANSWER = 256 * 2**20
"""Bytes."""
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
"""pydantic settings for what comes from a host."""

_ANYTHING = TypeAdapter[Any](Any)
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class HostError:
    """A `MortalError` that ended a call in the host."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    kind: str
    """Name of its class in mortal_steps.errors."""
    message: str


@dataclass(frozen=True, kw_only=True)
class HostAnswer(Generic[T]):
    """The answer to a request: what the method returned, or the error that it raised."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    number: int
    """Of the request."""
    value: T | None = None
    error: HostError | None = None


class NoAnswerError(Exception):
    """What came from the host is not an answer to the request."""


def encode_answer(answer: HostAnswer[Any]) -> bytes:
    plain = _adapter(Any).dump_python(answer, warnings=False)
    return _ANYTHING.dump_json(_clean(plain))


def decode_answer(content: bytes, number: int, returns: Any) -> HostAnswer[Any]:
    """Return answer `number`, of type `returns`. Raises `NoAnswerError` for anything else."""
    try:
        answer = _adapter(returns).validate_json(content)
    except ValidationError:
        raise NoAnswerError("it is no answer") from None
    if answer.number != number:
        raise NoAnswerError(f"it is numbered {answer.number} instead of {number}")
    return answer


def sent_error(error: Exception, trace: str) -> HostError:
    """Return the error as the nearest class of MORTAL's own, which the receiver knows."""
    if not isinstance(error, MortalError):
        text = printable(f"{type(error).__name__}\n{trace}")
        return HostError(kind=WorkerError.__name__, message=text)
    kind = next(base for base in type(error).__mro__ if base.__module__ == errors.__name__)
    message = str(error) if type(error) is kind else f"{type(error).__name__}: {error}"
    return HostError(kind=kind.__name__, message=printable(message))


def received_error(error: HostError) -> MortalError:
    kind = getattr(errors, error.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, MortalError)):
        raise NoAnswerError(f"there is no {error.kind!r}")
    return kind(error.message)


@functools.cache
def _adapter(returns: Any) -> TypeAdapter[HostAnswer[Any]]:
    return TypeAdapter(HostAnswer[returns])


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {
            storable(key) if isinstance(key, str) else key: _clean(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
