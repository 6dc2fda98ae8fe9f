"""The reward environment, and what it does as plain functions."""

from collections.abc import Mapping, Sequence
from typing import Any

from mortal_steps.rewards.base import text_of
from mortal_steps.rewards.code_execution.cases import Case, total_limits
from mortal_steps.rewards.code_execution.forms import cases_of
from mortal_steps.rewards.columns import BESIDE_COLUMNS, DatasetRowError
from mortal_steps.rewards.environments import RewardEnvironment, SandboxConfig
from mortal_steps.rewards.extraction import extract_code, without_thoughts
from mortal_steps.rewards.kinds.sandbox import SandboxTerm
from mortal_steps.sandbox.base import ExecutionResult
from mortal_steps.sandbox.pool import Row

COLUMNS = ("testcases", "test_cases", "testcase", "tests")
ENTRY_POINT = "entry_point"
"""Column with the function that the test cases of HumanEval are about."""


class CodeExecutionEnvironment(RewardEnvironment):
    """1 for a program that passes all test cases, else 0; `settings` are those of `SandboxTerm`.
    One that runs out of time has failed the later cases."""

    name = "CodeExecution"

    def __init__(self, partial_credit: bool = False, **settings: Any) -> None:
        self.term = term = SandboxTerm(partial_credit=partial_credit, **settings)
        self._total = total_limits(term.timeout, term.total_timeout)
        self.sandbox_config = SandboxConfig(timeout=term.timeout, memory_mb=term.memory_mb)

    def code_of(self, completion: str) -> str:
        """Return the program in a completion: its last block of Python, or else all of it."""
        text = without_thoughts(completion)
        return extract_code(text) or text

    def score(self, completion: str, prompt: str, **kwargs: Any) -> float | None:
        columns = {name: [value] for name, value in kwargs.items()}
        return self.score_batch([completion], [prompt], **columns)[0]

    def score_batch(
        self, completions: Sequence[str], prompts: Sequence[str], **kwargs: Any
    ) -> list[float | None]:
        """Score; None without test cases. Raises `DatasetRowError` for malformed ones."""
        cases = self._cases(kwargs)
        rows = [
            self._row(self.code_of(completion), of_it)
            for completion, of_it in zip(completions, cases, strict=True)
        ]
        results = self.execute_rows(rows)
        return [self._credit(*each) for each in zip(cases, results, strict=True)]

    def _cases(self, columns: dict[str, Any]) -> list[list[Case]]:
        name = self._column(columns)
        entry_points = columns.get(ENTRY_POINT, [None] * len(columns[name]))
        found: list[list[Case]] = []
        for row, (value, entry) in enumerate(zip(columns[name], entry_points, strict=True)):
            try:
                found.append(cases_of(value, entry))
            except ValueError as error:
                wrong = f"holds no test case: {error}"
                raise DatasetRowError(column=name, row=row, value=value, wrong=wrong) from None
        return found

    def _column(self, columns: dict[str, Any]) -> str:
        names = [self.term.column] if self.term.column else COLUMNS
        for name in names:
            if name in columns:
                return name
        there = [name for name in columns if name not in BESIDE_COLUMNS]
        raise ValueError(
            f"the dataset has no column {' or '.join(names)} with test cases; its columns are "
            f"{', '.join(['prompt', *there])}. Without a reward of your own, completions are run "
            "as programs against test cases: name a reward, or the column with them"
        )

    def _row(self, code: str, cases: Sequence[Case]) -> Row:
        def go_on(results: Sequence[ExecutionResult]) -> bool:
            last = results[-1]
            if self._spent(results):
                return False
            if self.term.partial_credit:
                return not last.timed_out
            return cases[len(results) - 1].passed(last)

        limits = self.sandbox_config
        return Row(programs=[case.program(code, limits) for case in cases], go_on=go_on)

    def _spent(self, results: Sequence[ExecutionResult]) -> bool:
        """Return whether the time for all test cases is over; sleepers meet the second clock."""
        cpu_s = sum(result.cpu_s for result in results)
        wall_s = sum(result.wall_s for result in results)
        return cpu_s >= self._total.timeout or wall_s >= self._total.deadline_s

    def _credit(self, cases: Sequence[Case], results: Sequence[ExecutionResult]) -> float | None:
        if not cases:
            return None
        passed = sum(case.passed(result) for case, result in zip(cases, results, strict=False))
        return passed / len(cases) if self.term.partial_credit else float(passed == len(cases))


def compute_reward(completion: Any, testcase: Any) -> float:
    """Return 1 if the program in a completion passes all of its test cases, else 0."""
    return reward_helper_function([completion], [testcase])[0]


def compute_reward_with_partial_credit(completion: Any, testcase: Any) -> float:
    """Return the share of its test cases that the program in a completion passes."""
    return _rewards([completion], [testcase], partial_credit=True)[0]


def reward_helper_function(
    completions: Sequence[Any], testcases: Sequence[Any], **kwargs: Any
) -> list[float]:
    return _rewards(completions, testcases, partial_credit=False, columns=kwargs)


def _rewards(
    completions: Sequence[Any],
    testcases: Sequence[Any],
    *,
    partial_credit: bool,
    columns: Mapping[str, Any] | None = None,
) -> list[float]:
    entry_points = {name: column for name, column in (columns or {}).items() if name == ENTRY_POINT}
    environment = CodeExecutionEnvironment(partial_credit)
    texts = [text_of(completion) for completion in completions]
    scores = environment.score_batch(texts, [""] * len(texts), testcases=testcases, **entry_points)
    if None in scores:
        raise ValueError(f"completion {scores.index(None)} has no test case")
    return [score for score in scores if score is not None]
