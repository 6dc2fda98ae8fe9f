"""`type = "sandbox"`: run completions as programs against the test cases of the dataset."""

from typing import Literal

from pydantic import Field

from mortal_steps.config.rewards import RewardTerm
from mortal_steps.rewards.base import RewardFunction
from mortal_steps.rewards.code_execution.cases import total_limits
from mortal_steps.sandbox.base import Limits
from mortal_steps.users_code.loading import import_code

ENVIRONMENT = "mortal_steps.rewards.code_execution.environment:CodeExecutionEnvironment"


class SandboxTerm(RewardTerm, extra="forbid"):
    """1 for a program that passes all test cases of its problem, else 0."""

    type: Literal["sandbox"] = "sandbox"

    partial_credit: bool = False
    """The share of the test cases that it passes, instead."""
    column: str | None = None
    """Of the dataset, with the test cases; default: `testcases`, `test_cases`, `testcase` or
    `tests`."""
    timeout: float = Field(5.0, gt=0)
    """CPU time of a program with one test case, in seconds."""
    total_timeout: float | None = Field(None, gt=0)
    """CPU time of a program with all of its test cases, in seconds; those after that count as
    failed. Default: ten times `timeout`."""
    memory_mb: int = Field(1024, gt=0)

    def time_limit_s(self, num_completions: int, timeout_s: float) -> float:
        """Return enough for completions that all take as long as they may, on one lane. Three times
        that: one that ends itself by a signal runs once more in each test case."""
        total = total_limits(self.timeout, self.total_timeout)
        # The last test case may begin just before the end.
        longest_s = total.deadline_s + Limits(timeout=self.timeout).deadline_s
        return max(timeout_s, 3 * num_completions * longest_s)

    def load(self) -> RewardFunction:
        environment = import_code(ENVIRONMENT, "rewards.terms")
        made: RewardFunction = environment(**self.model_dump(exclude={"type", "weight", "name"}))
        return made
