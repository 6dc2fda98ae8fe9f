"""Writes what a run reports: metrics.jsonl, timings.jsonl, evaluations.jsonl and the curve."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from mortal_steps.report.curve import draw_reward_curve
from mortal_steps.report.progress import StepReport
from mortal_steps.report.timings import stage_totals
from mortal_steps.run import Run
from mortal_steps.store import append_line, read_lines
from mortal_steps.types import BatchRef, Evaluation, RewardRef, StageTiming, StepResult


class Recorder:
    """Turns what the stages return into lines of the run's logs."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._mark = time.perf_counter()
        self.totals = stage_totals(run.timings())

    def begin_step(self) -> None:
        """A step's clock starts."""
        self._mark = time.perf_counter()

    def go_back_to(self, step: int) -> None:
        """Forget what was noted after an earlier step, where the run goes on."""
        self._run.go_back_to(step)
        self.totals = stage_totals(self._run.timings())

    def timing(self, *timings: StageTiming) -> None:
        """Note where time went."""
        path = self._run.store.path("timings.jsonl")
        for timing in timings:
            append_line(path, dataclasses.asdict(timing))
            self.totals.add(timing.stage, timing.busy_s, timing.wait_s)

    def step(self, batch: BatchRef, rewards: Sequence[RewardRef], result: StepResult) -> StepReport:
        """A train step ended: one line of metrics, and the timings of its stages."""
        done = result.step + 1
        seconds = time.perf_counter() - self._mark
        num_tokens = sum(shard.generation.num_tokens for shard in rewards)
        num_scored = sum(shard.num_scored for shard in rewards)
        reward_sum = sum(shard.reward_sum for shard in rewards)
        mean_reward = reward_sum / num_scored if num_scored else 0.0
        row = {
            **result.metrics,
            "step": done,
            "reward": mean_reward,
            "num_scored": num_scored,
            "num_tokens": num_tokens,
            "policy_version": rewards[0].generation.policy_version,
            "optimizer_steps": result.optimizer_steps,
            "state_id": result.state_id,
        }
        append_line(self._run.store.path("metrics.jsonl"), row)
        self.timing(batch.timing, *(shard.generation.timing for shard in rewards))
        self.timing(*(shard.timing for shard in rewards), result.timing)
        return StepReport(
            step=done,
            reward=mean_reward,
            loss=result.metrics.get("loss", 0.0),
            num_tokens=num_tokens,
            seconds=seconds,
        )

    def evaluation(self, evaluation: Evaluation) -> None:
        """The held-out problems were scored."""
        row = {"step": evaluation.step, **evaluation.metrics}
        append_line(self._run.store.path("evaluations.jsonl"), row)
        self.timing(evaluation.timing)

    def draw(self) -> None:
        """Draw the reward curve; nothing to draw before the first step."""
        metrics = self._run.metrics()
        if metrics:
            draw_reward_curve(
                self._run.store.path("reward_curve.png"),
                self._run.info.run_id,
                metrics,
                read_lines(self._run.store.path("evaluations.jsonl")),
            )
