"""mortal_steps.rewards.code_execution: test cases in the forms that datasets have."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from mortal_steps.rewards.code_execution.cases import AssertCase, CallCase, StdinCase
from mortal_steps.rewards.code_execution.environment import CodeExecutionEnvironment
from mortal_steps.rewards.code_execution.forms import cases_of
from mortal_steps.rewards.columns import DatasetRowError
from mortal_steps.rewards.kinds.sandbox import SandboxTerm
from mortal_steps.sandbox.base import ExecutionResult, Limits
from tests.support.refused import refused

CHECK = "def check(candidate):\n    assert candidate(1, 2) == 3\n"


def printed(text: str, *, success: bool = True) -> ExecutionResult:
    return ExecutionResult(success=success, stdout=text, stderr="", exit_code=0, duration=0.0)


@pytest.fixture
def passes(capfd: pytest.CaptureFixture[str]) -> Callable[[Any, str], bool]:
    """Whether code passes a case."""

    def run(case: Any, code: str) -> bool:
        try:
            exec(case.program(code, Limits()).code, {})
        except AssertionError:
            return False
        return bool(case.passed(printed(capfd.readouterr().out)))

    return run


def statements(value: Any, entry_point: Any = None) -> list[str]:
    cases = cases_of(value, entry_point)
    return [case.statements for case in cases if isinstance(case, AssertCase)]


@pytest.mark.parametrize(
    ("value", "forms"),
    [
        ("assert f(1) == 2", [AssertCase]),
        ("import math\nassert f(1)\nassert f(2)", [AssertCase, AssertCase]),
        (["assert f(1)", "assert f(2)"], [AssertCase, AssertCase]),
        ("def check(f):\n    assert f(1)\ncheck(f)", [AssertCase]),
        ("for n in range(3):\n    if f(n): raise ValueError", [AssertCase]),
        ({"input": "1", "output": 2}, [StdinCase]),
        ({"input": "1", "output": "2", "id": 7, "difficulty": "easy"}, [StdinCase]),
        ({"input": "1", "output": "2", "testtype": "stdin"}, [StdinCase]),
        ({"inputs": ["1", "2"], "outputs": ["1", "2"], "fn_name": None}, [StdinCase] * 2),
        (json.dumps({"fn_name": "f", "inputs": [[1]], "outputs": [2]}), [CallCase]),
        ({"function": "f", "args": [1], "expected": False}, [CallCase]),
        ({"function": "f", "args": [1], "expected": None}, [CallCase]),
        ("{'input': '1 2', 'output': '3'}", [StdinCase]),
        ("['assert add(1, 2) == 3']", [AssertCase]),
        ([], []),
        (None, []),
        ("", []),
    ],
)
def test_forms(value: Any, forms: list[type]) -> None:
    assert [type(case) for case in cases_of(value)] == forms


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("assert (", "is no Python"),
        ("None", "tests nothing"),
        ("'assert f(1)'", "tests nothing"),
        ("import math\ndef test():\n    assert f(1)", "tests nothing"),
        ("x = lambda: f(1)", "tests nothing"),
        (CHECK, "never calls it; add a column `entry_point`"),
        ("[f(1)]", "neither JSON nor a list"),
        ("{'args': [inf]}", "neither JSON nor a list"),
        ({"input": "1"}, "keys input is of no known form"),
        ({"input": "1", "output": "2", "func": "f"}, "keys func, input, output is of no known"),
        ({"input": "1", "output": "2", "args": [1]}, "of no known form"),
        ({"input": "1\n2", "output": "3", "testtype": "functional"}, "names no function"),
        ({"input": "1", "output": "2", "type": "function_call"}, "names no function"),
        ({"input": "1", "output": "2", "type": "stdin", "fn_name": "f"}, "names f"),
        ({"input": "1", "output": "2", "type": "interactive"}, "of the type 'interactive'"),
        ({"fn_name": "f", "input": "1", "output": 2}, "write a list of its arguments"),
        ({"fn_name": "f", "stdin": "1", "stdout": "2"}, "of no known form"),
        ({"inputs": ["1"], "outputs": []}, "1 inputs and 0 outputs"),
        ({"inputs": "12", "outputs": "21"}, "inputs = '12' is no list"),
        ({"input": {"a": 1}, "output": "1"}, "no text that a program could read"),
        ({"function": 3, "args": [], "expected": 1}, "names the function"),
        ({"fn_name": "f", "inputs": ["1"], "outputs": [1]}, "write a list of its arguments"),
        ({"function": "f", "args": [], "expected": {1, 2}}, "cannot be written as JSON"),
        ({"function": "f", "args": [object()], "expected": 1}, "cannot be handed to a program"),
        (7, "7 is no test case"),
    ],
)
def test_what_is_no_test_case_is_an_error_of_its_row(value: Any, message: str) -> None:
    with refused(ValueError, message):
        cases_of(value)
    with refused(DatasetRowError, "column 'tests' = ", "in row 1", message) as error:
        CodeExecutionEnvironment().score_batch(["", ""], ["", ""], tests=[None, value])
    assert error.value.row == 1


def test_what_is_shared_stands_before_each_assertion() -> None:
    first, second = cases_of("import math\nassert f(1)\nassert f(2)")
    assert isinstance(first, AssertCase) and first.statements == "import math\nassert f(1)"
    assert isinstance(second, AssertCase) and second.statements == "import math\nassert f(2)"
    assert first.marker != second.marker


@pytest.mark.parametrize(
    "text",
    [
        "s = Stack()\ns.push(1)\nassert s.pop() == 1\ns.push(2)\nassert s.pop() == 2\n",
        "import math\nassert f(1)\nx = 2\nassert f(x)",
        "numbers = iter(f())\nassert next(numbers) == 1\nassert next(numbers) == 2",
        "assert (n := f(1)) == 1\nassert f(n) == 2",
    ],
)
def test_assertions_that_need_each_other_are_one_test_case(text: str) -> None:
    assert statements(text) == [text]


def test_a_check_that_nobody_calls_is_called_with_the_function_of_the_row(passes: Any) -> None:
    (case,) = cases_of(CHECK, "add")
    assert passes(case, "def add(a, b): return a + b")
    assert not passes(case, "def add(a, b): return 'wrong'")
    assert statements(CHECK, "Solution().add")[0].endswith("check(Solution().add)")
    assert statements(f"{CHECK}check(add)", "other") == [f"{CHECK}check(add)"]
    with refused(ValueError, "entry_point = 'a b'"):
        cases_of(CHECK, "a b")


def test_a_single_pair_with_a_function_is_a_call() -> None:
    for table in (
        {"type": "function_call", "fn_name": "add", "input": [1, 2], "output": 3},
        {"testtype": "functional", "fn_name": "add", "input": "1\n2", "output": "3"},
    ):
        (case,) = cases_of(table)
        assert isinstance(case, CallCase)
        assert (case.function, list(case.args), case.expected) == ("add", [1, 2], 3)


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
        ("NaN", math.nan, True),
        ("1", math.nan, False),
        ("-Infinity", -math.inf, True),
        ("1" + "0" * 400, 1.0, False),
        ('{"a": [1.0]}', {"a": [1]}, True),
        ("[1]", [1, 2], False),
        ('"1"', 1, False),
        ("no json", 1, False),
        ("[" * 100_000 + "]" * 100_000, 1, False),
    ],
)
def test_returned_values_are_compared_as_json(answer: str, expected: Any, same: bool) -> None:
    case = CallCase(function="f", args=[], kwargs={}, expected=expected, marker="m")
    assert case.passed(printed(f"noise\nm{answer}\n")) is same


def test_arguments_arrive_exactly_as_they_are(passes: Any) -> None:
    given = [math.inf, math.nan, (1, "é\ud800"), {1: b"\x00"}, None]
    code = f"def f(*args, last): return [repr(args), last] == [{repr(tuple(given))!r}, -0.5]"
    case = CallCase(function="f", args=given, kwargs={"last": -0.5}, expected=True)
    assert passes(case, code)
    assert not passes(case, "def f(*args, last): return False")


def test_the_expected_value_is_not_told_to_the_program() -> None:
    for case in cases_of(
        [{"input": "1", "output": "right"}, {"function": "f", "args": [], "expected": "right"}]
    ):
        program = case.program("print(1)", Limits())
        assert "right" not in program.code + program.stdin


@pytest.mark.parametrize("spent", [{"cpu_s": 1.0}, {"wall_s": 4.0}])
def test_test_cases_after_the_time_for_all_of_them_have_failed(spent: dict[str, float]) -> None:
    """Each takes a second of two, or four of nine."""
    ran = 0

    class Runs(CodeExecutionEnvironment):
        def execute_rows(self, rows: Any, *args: Any) -> Any:
            nonlocal ran
            (row,) = rows
            results: list[ExecutionResult] = []
            for case in cases:
                told = {"success": True, "stderr": "", "exit_code": 0, "duration": 0.0, **spent}
                results.append(ExecutionResult(stdout=case["output"], **told))  # type: ignore[arg-type]
                ran += 1
                if not row.go_on(results):
                    break
            return [results]

    cases = [{"input": "", "output": str(number)} for number in range(10)]
    environment = Runs(partial_credit=True, total_timeout=2.0)
    (score,) = environment.score_batch(["pass"], [""], tests=[cases])
    assert (ran, score) == (3, 0.3) if "wall_s" in spent else (2, 0.2)


def test_the_time_of_a_call_is_enough_for_completions_that_are_all_too_slow() -> None:
    term = SandboxTerm(type="sandbox", timeout=5.0)
    most_s = (2 * 50.0 + 5.0) + (2 * 5.0 + 5.0)  # all test cases but the last, and that one
    assert term.time_limit_s(8, 60.0) == 3 * 8 * most_s
    assert term.time_limit_s(0, 60.0) == 60.0
    short = SandboxTerm(type="sandbox", timeout=1.0, total_timeout=2.0)
    assert short.time_limit_s(1, 10.0) == 3 * (9.0 + 7.0)


def test_a_dataset_without_test_cases_is_told_its_own_columns():
    given = {"answer": ["2"], "completion_ids": [[1]], "trainer_state": None, "log_metric": print}
    with refused(ValueError, "prompt, answer"):
        CodeExecutionEnvironment().score_batch(["2"], ["1 + 1 ="], **given)
