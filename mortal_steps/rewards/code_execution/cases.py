"""Test cases: the program that asks each of a completion's code, and whether it passed.

What a program should print or return is compared outside the sandbox and never told to it; an
assertion runs beside the code.
"""

import binascii
import json
import marshal
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mortal_steps.sandbox.base import ExecutionResult, Limits, Program

TIMES_ONE_CASE = 10
"""Default of `total_timeout` as a multiple of `timeout`, the time of one test case."""


def total_limits(timeout: float, total_timeout: float | None) -> Limits:
    """CPU time and time of all cases, `timeout` CPU seconds for one; raises `ValueError`."""
    return Limits(timeout=TIMES_ONE_CASE * timeout if total_timeout is None else total_timeout)


class Case(Protocol):
    """One test case."""

    def program(self, code: str, limits: Limits) -> Program:
        """Return the code with the question that the case asks of it."""
        ...

    def passed(self, result: ExecutionResult) -> bool:
        """Whether the program's answer is the right one."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class StdinCase:
    """What the program prints, if it reads `stdin`."""

    stdin: str
    stdout: str

    def program(self, code: str, limits: Limits) -> Program:
        return Program(code=code, stdin=self.stdin, limits=limits)

    def passed(self, result: ExecutionResult) -> bool:
        """See `Case`. White space at the ends of lines and of the text does not count."""
        return result.success and _lines(result.stdout) == _lines(self.stdout)


@dataclass(frozen=True, kw_only=True, slots=True)
class AssertCase:
    """Statements that raise nothing after the code."""

    statements: str
    marker: str = field(default_factory=lambda: secrets.token_hex(16))
    """Line that the program prints after its last statement: an earlier end is no success."""

    def program(self, code: str, limits: Limits) -> Program:
        ending = _write_line(repr(self.marker))
        return Program(code=f"{code}\n{self.statements}\n{ending}", limits=limits)

    def passed(self, result: ExecutionResult) -> bool:
        return result.success and result.stdout.endswith(f"\n{self.marker}\n")


@dataclass(frozen=True, kw_only=True, slots=True)
class CallCase:
    """What a function, or a method of `Solution`, returns. Raises `ValueError` for arguments or an
    expected value that cannot be carried."""

    function: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    expected: Any
    marker: str = field(default_factory=lambda: secrets.token_hex(16))

    def __post_init__(self) -> None:
        try:
            self._packed()
        except ValueError as error:
            raise ValueError(
                f"the arguments of {self.function} cannot be handed to a program: {error}"
            ) from None
        try:
            json.dumps(self.expected)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(
                f"what {self.function} should return cannot be written as JSON: {error}"
            ) from None

    def program(self, code: str, limits: Limits) -> Program:
        """See `Case`. The program spends next to nothing on reading its arguments."""
        called = (
            f"(lambda given: (globals()[{self.function!r}] if {self.function!r} in globals()"
            f" else getattr(Solution(), {self.function!r}))(*given[0], **given[1]))"
            f"(__import__('marshal').loads(__import__('binascii').a2b_base64({self._packed()!r})))"
        )
        # What NumPy returns is no JSON, but has a method for that.
        dumped = f"__import__('json').dumps({called}, default=lambda one: one.tolist())"
        return Program(code=f"{code}\n{_write_line(f'{self.marker!r} + {dumped}')}", limits=limits)

    def passed(self, result: ExecutionResult) -> bool:
        """See `Case`. What cannot be read, because it is nested too deeply, is no right answer."""
        _, marker, answer = result.stdout.rpartition(f"\n{self.marker}")
        if not (result.success and marker):
            return False
        try:
            return _equal(json.loads(answer), json.loads(json.dumps(self.expected)))
        except (ValueError, RecursionError):
            return False

    def _packed(self) -> str:
        """Return the arguments exactly as they are, infinity and tuples included."""
        # In a format that every Python reads: on Modal, an image may have another one.
        packed = marshal.dumps((list(self.args), dict(self.kwargs)), 2)
        return binascii.b2a_base64(packed, newline=False).decode()


def _write_line(expression: str) -> str:
    """Return a statement that prints the value on a line of its own, whatever `print` is by now."""
    return (
        "(lambda line: (__import__('sys').stdout.flush(), __import__('os').write("
        f"1, ('\\n' + line + '\\n').encode())))({expression})\n"
    )


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def _equal(value: Any, expected: Any) -> bool:
    """Equality of JSON values; numbers that are not whole may differ in their last digits."""
    if isinstance(value, float) or isinstance(expected, float):
        numbers = all(type(one) in (int, float) for one in (value, expected))
        return numbers and _close(value, expected)
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(_equal, value, expected))
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(
            _equal(value[key], expected[key]) for key in value
        )
    return type(value) is type(expected) and bool(value == expected)


def _close(value: float, expected: float) -> bool:
    try:
        if math.isnan(value) or math.isnan(expected):
            return math.isnan(value) and math.isnan(expected)
        return math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-12)
    except OverflowError:  # a whole number beyond what a float can hold
        return False
