"""Test cases as datasets write them, and the program that asks one of a completion's code.

    "assert add(1, 2) == 3"                                  an assertion, or a text of several
    {"input": "1 2", "output": "3"}                          stdin and stdout
    {"function": "add", "args": [1, 2], "expected": 3}       a call
    {"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}   calls; without a name, stdin and stdout

A list holds several, and a text may be JSON of any of these. What a program should print or return
is compared outside the sandbox and never told to it; an assertion runs beside the code.
"""

from __future__ import annotations

import ast
import json
import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mortal_steps.sandbox.base import ExecutionResult, Limits, Program


class Case(Protocol):
    """One test case."""

    def program(self, code: str, limits: Limits) -> Program:
        """The code with the question that the case asks of it."""
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
        """See `Case`."""
        return Program(code=code, stdin=self.stdin, limits=limits)

    def passed(self, result: ExecutionResult) -> bool:
        """See `Case`. White space at the ends of lines and of the text does not count."""
        return result.success and _lines(result.stdout) == _lines(self.stdout)


@dataclass(frozen=True, kw_only=True, slots=True)
class AssertCase:
    """Statements that raise nothing after the code."""

    statements: str
    marker: str = field(default_factory=lambda: secrets.token_hex(16))
    """Printed after the statements: an end before them is no success."""

    def program(self, code: str, limits: Limits) -> Program:
        """See `Case`."""
        return Program(code=f"{code}\n{self.statements}\n{_say(repr(self.marker))}", limits=limits)

    def passed(self, result: ExecutionResult) -> bool:
        """See `Case`."""
        return result.success and result.stdout.endswith(f"\n{self.marker}\n")


@dataclass(frozen=True, kw_only=True, slots=True)
class CallCase:
    """What a function, or a method of `Solution`, returns."""

    function: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    expected: Any
    marker: str = field(default_factory=lambda: secrets.token_hex(16))

    def program(self, code: str, limits: Limits) -> Program:
        """See `Case`."""
        called = (
            f"(globals()[{self.function!r}] if {self.function!r} in globals()"
            f" else getattr(Solution(), {self.function!r}))"
            f"(*{list(self.args)!r}, **{dict(self.kwargs)!r})"
        )
        told = f"{self.marker!r} + __import__('json').dumps({called})"
        return Program(code=f"{code}\n{_say(told)}", limits=limits)

    def passed(self, result: ExecutionResult) -> bool:
        """See `Case`."""
        _, marker, answer = result.stdout.rpartition(f"\n{self.marker}")
        if not (result.success and marker):
            return False
        try:
            return _equal(json.loads(answer), json.loads(json.dumps(self.expected)))
        except ValueError:
            return False


def cases_of(value: Any) -> list[Case]:
    """The test cases that a column holds; raises `ValueError` for what is none."""
    return list(_cases(value))


def _cases(value: Any) -> Iterator[Case]:
    if isinstance(value, str):
        yield from _cases_in_text(value)
    elif isinstance(value, Mapping):
        yield from _cases_in_table(value)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _cases(each)
    elif value is not None:
        raise ValueError(f"{value!r:.80} is no test case")


def _cases_in_text(text: str) -> Iterator[Case]:
    if text.lstrip().startswith(("[", "{")):
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if value is not None:
            yield from _cases(value)
            return
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"the test case {text!r:.80} is no Python: {error}") from None
    asserts = [node for node in body if isinstance(node, ast.Assert)]
    shared = [ast.unparse(node) for node in body if not isinstance(node, ast.Assert)]
    if not asserts and shared:
        yield AssertCase(statements=text)
    for node in asserts:
        yield AssertCase(statements="\n".join([*shared, ast.unparse(node)]))


def _cases_in_table(table: Mapping[str, Any]) -> Iterator[Case]:
    given = {name: value for name, value in table.items() if value is not None}
    if {"inputs", "outputs"} <= given.keys():
        for one, expected in zip(given["inputs"], given["outputs"], strict=True):
            if "fn_name" in given:
                yield _call(given["fn_name"], one, {}, expected)
            else:
                yield StdinCase(stdin=_text(one), stdout=_text(expected))
    elif {"function", "expected"} <= given.keys():
        args, kwargs = given.get("args", []), given.get("kwargs", {})
        yield _call(given["function"], args, kwargs, given["expected"])
    elif {"input", "output"} <= given.keys():
        yield StdinCase(stdin=_text(given["input"]), stdout=_text(given["output"]))
    elif {"stdin", "stdout"} <= given.keys():
        yield StdinCase(stdin=_text(given["stdin"]), stdout=_text(given["stdout"]))
    else:
        raise ValueError(f"a test case with {sorted(given)} is of no known form")


def _call(function: Any, args: Any, kwargs: Any, expected: Any) -> CallCase:
    if not (isinstance(function, str) and isinstance(args, list | tuple)):
        raise ValueError(
            f"a call of {function!r:.80} with {args!r:.80}: name and list of arguments"
        )
    return CallCase(function=function, args=args, kwargs=kwargs, expected=expected)


def _text(value: Any) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _say(expression: str) -> str:
    """A statement that prints the value on a line of its own, whatever `print` is by now."""
    return (
        "(lambda said: (__import__('sys').stdout.flush(), __import__('os').write("
        f"1, ('\\n' + said + '\\n').encode())))({expression})\n"
    )


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def _equal(value: Any, expected: Any) -> bool:
    """Equality of JSON values; numbers that are not whole may differ in their last digits."""
    if isinstance(value, float) or isinstance(expected, float):
        numbers = all(type(one) in (int, float) for one in (value, expected))
        return numbers and math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(_equal, value, expected))
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(
            _equal(value[key], expected[key]) for key in value
        )
    return type(value) is type(expected) and bool(value == expected)
