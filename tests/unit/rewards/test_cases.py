"""mortal_steps.rewards.code_execution.cases: test cases in the forms that datasets have."""

import json
from typing import Any

import pytest

from mortal_steps.rewards.code_execution.cases import (
    AssertCase,
    CallCase,
    StdinCase,
    cases_of,
)
from mortal_steps.sandbox.base import ExecutionResult, Limits


def printed(text: str, *, success: bool = True) -> ExecutionResult:
    return ExecutionResult(success=success, stdout=text, stderr="", exit_code=0, duration=0.0)


@pytest.mark.parametrize(
    ("value", "forms"),
    [
        ("assert f(1) == 2", [AssertCase]),
        ("import math\nassert f(1)\nassert f(2)", [AssertCase, AssertCase]),
        (["assert f(1)", "assert f(2)"], [AssertCase, AssertCase]),
        ("def check(f):\n    assert f(1)\ncheck(f)", [AssertCase]),
        ({"input": "1", "output": 2}, [StdinCase]),
        ({"inputs": ["1", "2"], "outputs": ["1", "2"], "fn_name": None}, [StdinCase] * 2),
        (json.dumps({"fn_name": "f", "inputs": [[1]], "outputs": [2]}), [CallCase]),
        ({"function": "f", "args": [1], "expected": False}, [CallCase]),
        ([], []),
        (None, []),
        ("", []),
    ],
)
def test_forms(value: Any, forms: list[type]) -> None:
    assert [type(case) for case in cases_of(value)] == forms


@pytest.mark.parametrize(
    "value",
    [
        "assert (",
        {"input": "1"},
        {"inputs": ["1"], "outputs": []},
        {"function": 3, "args": [], "expected": 1},
        {"fn_name": "f", "inputs": ["1"], "outputs": [1]},
        7,
    ],
)
def test_what_is_no_test_case_is_an_error(value: Any) -> None:
    with pytest.raises(ValueError):
        cases_of(value)


def test_what_is_shared_stands_before_each_assertion() -> None:
    first, second = cases_of("import math\nassert f(1)\nassert f(2)")
    assert isinstance(first, AssertCase) and first.statements == "import math\nassert f(1)"
    assert isinstance(second, AssertCase) and second.statements == "import math\nassert f(2)"
    assert first.marker != second.marker


def test_white_space_at_ends_does_not_count() -> None:
    case = StdinCase(stdin="", stdout="1\n2\n")
    assert case.passed(printed("1 \n2\n\n"))
    assert not case.passed(printed("1 2"))
    assert not case.passed(printed("1\n2", success=False))


def test_an_assertion_passes_with_its_marker_last() -> None:
    case = AssertCase(statements="assert True", marker="m")
    assert case.passed(printed("noise\nm\n"))
    assert not case.passed(printed("noise\n"))
    assert not case.passed(printed("m\nnoise\n"))


@pytest.mark.parametrize(
    ("answer", "expected", "same"),
    [
        ("[1, 2]", (1, 2), True),
        ("0.30000000000000004", 0.3, True),
        ("1", True, False),
        ("true", True, True),
        ("1", 1.0, True),
        ('{"a": [1.0]}', {"a": [1]}, True),
        ("[1]", [1, 2], False),
        ('"1"', 1, False),
        ("no json", 1, False),
    ],
)
def test_returned_values_are_compared_as_json(answer: str, expected: Any, same: bool) -> None:
    case = CallCase(function="f", args=[], kwargs={}, expected=expected, marker="m")
    assert case.passed(printed(f"noise\nm{answer}\n")) is same


def test_the_expected_value_is_not_told_to_the_program() -> None:
    for case in cases_of(
        [{"input": "1", "output": "right"}, {"function": "f", "args": [], "expected": "right"}]
    ):
        program = case.program("print(1)", Limits())
        assert "right" not in program.code + program.stdin
