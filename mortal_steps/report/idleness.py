"""Finds steps from which nothing can be learned, in the rows of metrics.jsonl alone."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mortal_steps.report.units import number

WINDOW = 10
"""Steps in a row after which most signs are told."""
MISSING_STEPS = 3
"""Steps in a row in which no completion has a reward."""
CONSTANT_STEPS = 20
"""First steps in which a reward function gives every completion the same score."""
EQUAL = "frac_reward_zero_std"
"""TRL's name for the share of groups whose rewards are all equal."""
GRADIENT, CUT_OFF, TOOLS_FAIL = "grad_norm", "completions/clipped_ratio", "tools/failure_frequency"
"""TRL's names of the gradient's norm before clipping, and of the shares of completions without an
end token and of tool calls that failed."""
FLAT = "mortal.reward.flat"
"""The sign of rewards that are equal in each group."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sign:
    """Something in the metrics of several steps by which a run learns nothing, or not what it is
    to learn."""

    event: str
    text: str
    advice: str


class Idleness:
    """Goes through the rows of a run. A step is *idle* if no completion has a reward, if the
    rewards of each group are equal, or if the gradient is 0."""

    def __init__(self, functions: tuple[str, ...], run: str) -> None:
        """`functions` are the names of the reward functions; `run` is the run as commands take
        it."""
        self._run = run
        self.steps = 0
        """Idle steps in a row, up to the last row."""
        self._missing = 0
        self._no_gradient = 0
        self._cut_off = 0
        self._tools_fail = 0
        self._flat: deque[float] = deque(maxlen=WINDOW)
        """Rewards of the last steps, as long as those of each group are equal."""
        self._constant: dict[str, float | None] = dict.fromkeys(functions)
        """The score of functions that have given no other so far; None before the first."""
        self._seen = 0

    def step(self, row: Mapping[str, Any], *, samples: bool, scored: bool) -> Iterator[Sign]:
        """Look at a step's row: whether it trains on completions, and whether on their rewards."""
        reward, step = row["reward"], row["step"]
        still = row.get(GRADIENT) == 0.0
        missing = scored and reward is None
        flat = scored and reward is not None and row.get(EQUAL) == 1.0
        self.steps = self.steps + 1 if still or missing or flat else 0
        self._missing = self._missing + 1 if missing else 0
        if self._missing == MISSING_STEPS:
            yield self._of_missing_rewards(step)
        if flat:
            self._flat.append(reward)
        else:
            self._flat.clear()
        if len(self._flat) == WINDOW:
            yield self._of_flat_rewards(step)
        self._no_gradient = self._no_gradient + 1 if still and not (missing or flat) else 0
        if self._no_gradient == WINDOW:
            yield self._of_no_gradient(step)
        if samples:
            yield from self._of_completions(row)
        if scored:
            yield from self._of_constant_scores(row)

    def _of_completions(self, row: Mapping[str, Any]) -> Iterator[Sign]:
        self._cut_off = self._cut_off + 1 if row.get(CUT_OFF) == 1.0 else 0
        if self._cut_off == WINDOW:
            yield Sign(
                event="mortal.completions.cut_off",
                text=f"every completion of {_steps(row['step'], WINDOW)} was cut off: none has an "
                "end token within training.max_completion_length",
                advice="raise training.max_completion_length, or ask for short answers in the "
                f"prompt; `mortal samples {self._run}` shows where they break off",
            )
        self._tools_fail = self._tools_fail + 1 if row.get(TOOLS_FAIL) == 1.0 else 0
        if self._tools_fail == WINDOW:
            yield Sign(
                event="mortal.tools.failing",
                text=f"every tool call of {_steps(row['step'], WINDOW)} failed",
                advice=f"`mortal samples {self._run}` shows the calls and what the tools said: an "
                "error of a tool's own, or calls that no tool understands",
            )

    def _of_constant_scores(self, row: Mapping[str, Any]) -> Iterator[Sign]:
        """Yield a sign if functions have never given anything but one score that is no success."""
        self._seen += 1
        for name, score in list(self._constant.items()):
            mean, spread = row.get(f"rewards/{name}/mean"), row.get(f"rewards/{name}/std")
            if mean is None:
                continue
            if spread != 0.0 or mean > 0 or score not in (None, mean):
                del self._constant[name]
            else:
                self._constant[name] = mean
        found = {name: score for name, score in self._constant.items() if score is not None}
        if self._seen == CONSTANT_STEPS and found and self.steps < WINDOW:
            in_words = " and ".join(f"{name} ({number(score)})" for name, score in found.items())
            yield Sign(
                event="mortal.reward.constant",
                text=f"in the first {CONSTANT_STEPS} steps, every completion got the same score "
                f"from {in_words}",
                advice="what the function looks for may be in no completion, or it may not find "
                f"what is there: read some (`mortal samples {self._run}`), and call it with them "
                "(`mortal test-reward`)",
            )

    def _of_missing_rewards(self, step: int) -> Sign:
        return Sign(
            event="mortal.reward.missing",
            text=f"nothing to learn from: no completion of {_steps(step, MISSING_STEPS)} has a "
            "reward. Every reward function returned None for it, or failed and was masked",
            advice=f"read the completions (`mortal samples {self._run}`) and call the functions "
            "with them (`mortal test-reward`)",
        )

    def _of_flat_rewards(self, step: int) -> Sign:
        found = list(dict.fromkeys(number(reward) for reward in sorted(self._flat)))
        between = found[0] if len(found) == 1 else f"between {found[0]} and {found[-1]}"
        return Sign(
            event=FLAT,
            text=f"nothing to learn from: the rewards of every group of {_steps(step, WINDOW)} are "
            f"equal (reward {between}), so all advantages are 0",
            advice="if every completion fails, take easier problems or a reward that tells bad "
            "from worse; if every one succeeds, take harder problems; else raise "
            "rollout.temperature or training.num_generations",
        )

    def _of_no_gradient(self, step: int) -> Sign:
        return Sign(
            event="mortal.training.no_gradient",
            text=f"nothing is learned: the gradient was 0 in {_steps(step, WINDOW)}",
            advice="see whether an adapter (training.lora.target_modules) sits on layers that the "
            "model uses, whether the loss covers a token at all (mask_truncated_completions, "
            "assistant_only_loss), and whether the weights are frozen",
        )


def _steps(last: int, count: int) -> str:
    return f"steps {last - count + 1} to {last}"
