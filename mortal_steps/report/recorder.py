"""Writes what a run reports: metrics.jsonl, timings.jsonl, evaluations.jsonl, quarantine.jsonl and
the curve."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterable, Iterator, Sequence

from mortal_steps.errors import StoreError
from mortal_steps.report.curve import draw_reward_curve
from mortal_steps.report.log_repair import mend_logs, metrics_row, restore_logs
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

logger = logging.getLogger(__name__)

DRAW_EVERY_S = 60.0
"""Between two pictures of a run that goes on: drawing one takes some tenths of a second."""


class Recorder:
    """Turns what the stages return into lines of the run's logs."""

    def __init__(self, run: Run) -> None:
        """Cuts the logs back to the run's step, and makes again what is damaged of them."""
        restore_logs(run)
        self._run = run
        self._logged = run.manifest.step
        """Steps whose lines are written."""
        self._mark = time.perf_counter()
        self._drawn = time.monotonic()
        self.totals = stage_totals(run.timings())

    def begin_step(self) -> None:
        """A step's clock starts."""
        self._mark = time.perf_counter()

    def go_back_to(self, step: int) -> None:
        """Forget what was noted after an earlier step, where the run goes on."""
        self._run.go_back_to(step)
        self._logged = step
        self.totals = stage_totals(self._run.timings())

    def timing(self, *timings: StageTiming) -> None:
        """Note where time went."""
        self._run.append(TIMINGS, *(dataclasses.asdict(timing) for timing in timings))
        for timing in timings:
            self.totals.add(timing.stage, timing.busy_s, timing.wait_s)

    def step(self, batch: BatchRef, rewards: Sequence[RewardRef], result: StepResult) -> StepReport:
        """A train step ended: one line of metrics, and the timings of its stages."""
        self.mend()
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
        self._logged = row["step"]
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

    def mend(self) -> None:
        """Make again what somebody else has removed or cut of the logs."""
        mend_logs(self._run, self._logged)

    def complete(self) -> None:
        """The run is done: its logs are checked to the byte, and made again where they must be."""
        self.mend()
        self._run.update(step=self._run.manifest.step)
        restore_logs(self._run)

    def draw(self) -> None:
        """Draw the reward curve; nothing to draw before the first step."""
        metrics = self._run.metrics()
        if metrics:
            draw_reward_curve(
                self._run.store.path("reward_curve.png"),
                self._run.info.run_id,
                metrics,
                self._run.logs.read(EVALUATIONS),
                training_temperature=self._run.config.rollout.temperature,
                held_out_temperature=self._run.config.evaluation.temperature,
            )
        self._drawn = time.monotonic()

    def draw_now_and_then(self) -> None:
        """Draw the reward curve if that is a while ago; the first time after a while, too."""
        if time.monotonic() - self._drawn >= DRAW_EVERY_S:
            self.draw()

    def draw_at_early_end(self) -> None:
        """Draw the reward curve of a run that has failed or stopped; where that fails too, the
        first error is the one told."""
        try:
            self.draw()
        except StoreError as failure:
            logger.warning("the reward curve is not drawn: %s", failure)

    def _failures(self, rewards: Sequence[RewardRef]) -> Iterator[RewardFailure]:
        for shard in rewards:
            if shard.masked:
                yield from self._run.store.read_record(shard.file, RewardedShard).failures

    def _quarantine(self, step: int, stage: str, failures: Iterable[RewardFailure]) -> None:
        rows = [{"step": step, "stage": stage, **dataclasses.asdict(one)} for one in failures]
        if rows:
            self._run.append(QUARANTINE, *rows)
