"""Writes what a run reports: metrics.jsonl, timings.jsonl, evaluations.jsonl, quarantine.jsonl and
the curve."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator, Sequence

from mortal_steps.report.curve import draw_reward_curve
from mortal_steps.report.log_repair import metrics_row, restore_logs
from mortal_steps.report.progress import StepReport
from mortal_steps.report.timings import stage_totals
from mortal_steps.runs.logs import EVALUATIONS, METRICS, QUARANTINE, TIMINGS
from mortal_steps.runs.run import Run
from mortal_steps.types import (
    BatchRef,
    Evaluation,
    RewardedShard,
    RewardFailure,
    RewardRef,
    StageTiming,
    StepResult,
)


class Recorder:
    """Turns what the stages return into lines of the run's logs."""

    def __init__(self, run: Run) -> None:
        """Cuts the logs back to the run's step, and makes again what is damaged of them."""
        restore_logs(run)
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
        self._run.append(TIMINGS, *(dataclasses.asdict(timing) for timing in timings))
        for timing in timings:
            self.totals.add(timing.stage, timing.busy_s, timing.wait_s)

    def step(self, batch: BatchRef, rewards: Sequence[RewardRef], result: StepResult) -> StepReport:
        """A train step ended: one line of metrics, and the timings of its stages."""
        seconds = time.perf_counter() - self._mark
        row = metrics_row(self._run.config, result, rewards)
        self._run.append(METRICS, row)
        failures = list(self._failures(rewards))
        self._quarantine(row["step"], "reward", failures)
        self.timing(
            batch.timing,
            *(shard.generation.timing for shard in rewards),
            *(shard.timing for shard in rewards),
            result.timing,
        )
        return StepReport(
            step=row["step"],
            reward=row["reward"],
            loss=result.metrics.get("loss", 0.0),
            num_tokens=row["num_sampled_tokens"],
            seconds=seconds,
            num_masked=len({failure.problem_id for failure in failures}),
        )

    def evaluation(self, evaluation: Evaluation) -> None:
        """The held-out problems were scored."""
        row = {"step": evaluation.step, **evaluation.metrics}
        self._run.append(EVALUATIONS, row)
        self._quarantine(evaluation.step, "evaluate", evaluation.failures)
        self.timing(evaluation.timing)

    def evaluated(self, step: int) -> bool:
        """Whether the log holds the evaluation after `step` steps."""
        return any(row["step"] == step for row in self._run.logs.read(EVALUATIONS))

    def draw(self) -> None:
        """Draw the reward curve; nothing to draw before the first step."""
        metrics = self._run.metrics()
        if metrics:
            draw_reward_curve(
                self._run.store.path("reward_curve.png"),
                self._run.info.run_id,
                metrics,
                self._run.logs.read(EVALUATIONS),
            )

    def _failures(self, rewards: Sequence[RewardRef]) -> Iterator[RewardFailure]:
        for shard in rewards:
            if shard.masked:
                yield from self._run.store.read_record(shard.file, RewardedShard).failures

    def _quarantine(self, step: int, stage: str, failures: Iterable[RewardFailure]) -> None:
        rows = [{"step": step, "stage": stage, **dataclasses.asdict(one)} for one in failures]
        if rows:
            self._run.append(QUARANTINE, *rows)
