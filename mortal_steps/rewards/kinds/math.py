"""`type = "math"`: whether a completion's answer is mathematically equal to the dataset's.

By math-verify (<https://github.com/huggingface/Math-Verify>).
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import Field

from mortal_steps.config.rewards import RewardTerm
from mortal_steps.rewards.base import text_of
from mortal_steps.rewards.columns import DatasetRowError, column, gold_text
from mortal_steps.rewards.mathematics.verdicts import (
    COMPLETION_FAILED,
    Comparison,
    Verdict,
    check_installed,
    compare_all,
)

NO_GOLD = {
    Verdict.GOLD_UNPARSED: "is no mathematical expression that math-verify can parse",
    Verdict.DIFFERENT: "is not equal to itself, as math-verify finds",
    Verdict.OUT_OF_TIME: "takes math-verify more than {cpu_s:g} s of CPU time to parse",
    Verdict.CRASHED: "ends the process of math-verify",
}
"""What is wrong with a right answer that is not found equal to itself."""


class Math(RewardTerm, extra="forbid"):
    """1 for a completion whose answer is equal to the right one, else 0."""

    type: Literal["math"] = "math"
    column: str = "answer"
    """The dataset's column with the right answer, in LaTeX or plain; a number will do."""
    cpu_s: float = Field(3.0, gt=0)
    """CPU time of one comparison in seconds; a completion that takes more gets 0."""

    def time_limit_s(self, num_completions: int, timeout_s: float) -> float:
        """Enough for completions and right answers that all run out of time, one after the other,
        with half a core: their own limit holds."""
        return max(timeout_s, 2 * 2 * num_completions * self.cpu_s)

    def load(self) -> Callable[..., list[float]]:
        """Return the reward function. Raises `RewardError` where math-verify is missing."""
        check_installed()
        return self.math_equal

    def math_equal(
        self,
        completions: Sequence[Any],
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float]:
        """Return 1 where the completion's answer is equal to the right one, else 0.

        Raises `DatasetRowError` for a right answer that math-verify cannot parse or finds unequal
        to itself, and `WorkerLostError` if comparisons are ended from outside. Metrics:
        `math_unparsed`, `math_out_of_time` and `math_crashed`, the shares of completions that
        failed in that way, where there are any.
        """
        golds = [
            gold_text(value, column=self.column, row=row)
            for row, value in enumerate(column(columns, self.column, reward="math"))
        ]
        texts = map(text_of, completions)
        asked = [
            Comparison(gold=gold, answer=text) for gold, text in zip(golds, texts, strict=True)
        ]
        themselves = [Comparison(gold=gold, answer=None) for gold in golds]
        verdict_of = compare_all(themselves + asked, cpu_s=self.cpu_s)
        for row, itself in enumerate(themselves):
            if verdict_of[itself] is not Verdict.EQUAL:
                wrong = NO_GOLD[verdict_of[itself]].format(cpu_s=self.cpu_s)
                value = columns[self.column][row]
                raise DatasetRowError(column=self.column, row=row, value=value, wrong=wrong)
        found = [verdict_of[one] for one in asked]
        if log_metric is not None:
            for failed in COMPLETION_FAILED:
                if failed in found:
                    log_metric(f"math_{failed.name.lower()}", found.count(failed) / len(found))
        return [float(verdict is Verdict.EQUAL) for verdict in found]


def math_equal(
    completions: Sequence[Any],
    log_metric: Callable[[str, float], None] | None = None,
    **columns: Any,
) -> list[float]:
    """Return what `type = "math"` does without settings: compare with the column `answer`; see
    `Math.math_equal`."""
    return Math().math_equal(completions, log_metric, **columns)
