"""Writes what a run reports: metrics.jsonl, timings.jsonl, evaluations.jsonl, quarantine.jsonl,
usage.jsonl, and now and then the report."""

import dataclasses
import time
from collections.abc import Iterable, Iterator, Sequence

from mortal_steps.policy.batches import Batch
from mortal_steps.report.alerts import Alerts
from mortal_steps.report.evaluations import DIFFERING
from mortal_steps.report.log_repair import Row, metrics_row, restore_logs
from mortal_steps.report.progress import Pace, StepReport, recent_steps
from mortal_steps.report.report_files import write_report
from mortal_steps.report.timings import generation_timings, timing_row
from mortal_steps.runs.logs import EVALUATIONS, METRICS, QUARANTINE, SELECTIONS, TIMINGS, USAGE
from mortal_steps.runs.manifest import learns_without_rewards
from mortal_steps.runs.run import Run, held_out_sets
from mortal_steps.store.records import shard_file
from mortal_steps.types import (
    BatchRef,
    Evaluation,
    GeneratedShard,
    RewardedShard,
    RewardFailure,
    RewardRef,
    StageTiming,
    StepResult,
)

REPORT_EVERY_S = 180.0
"""Seconds between two reports of a run in progress."""


class Recorder:
    """Writes what the stages return to the run's logs."""

    def __init__(self, run: Run) -> None:
        """Cuts the logs back to the run's step, and makes again what is damaged of them."""
        restore_logs(run)
        self.alerts = Alerts(run)
        self._run = run
        self.pace = Pace(recent_steps(run.config.evaluation.eval_steps))
        """Of the steps that this process trains."""
        self._before = _last_usage(run, run.info.first_step)
        self._reported = time.monotonic()

    def go_back_to(self, step: int) -> None:
        """Set the run back; what is told of it is told of the steps until there."""
        self._run.go_back_to(step)
        self.alerts = Alerts(self._run)

    def begin_step(self) -> None:
        self.pace.begin()

    def timing(self, *timings: StageTiming) -> None:
        self._run.append(TIMINGS, *map(timing_row, timings))

    def step(self, problems: BatchRef, batch: Batch, result: StepResult) -> StepReport:
        """Record a train step: one line of metrics, and the timings of its stages."""
        rewards = batch.shards
        row = metrics_row(self._run.config.training_rewards, result, batch)
        self._run.append(METRICS, row)
        if (chosen := batch.selection) is not None:
            self._run.append(SELECTIONS, {"step": row["step"], **dataclasses.asdict(chosen)})
        self.alerts.warned(result.warnings, row["step"])
        timings = (
            problems.timing,
            *(timing for shard in rewards for timing in generation_timings(shard.generation)),
            *(shard.timing for shard in rewards if self._run.config.rewards_and_teachers),
            result.timing,
        )
        self.alerts.step(row)
        self._look_at_differences(row, [shard.generation.file.path for shard in rewards])
        failures = list(self._failures(rewards))
        self._quarantine(row["step"], "reward", failures)
        self.timing(*timings)
        return StepReport(
            step=row["step"],
            reward=row["reward"],
            loss=result.metrics.get("loss", 0.0),
            num_tokens=int(row.get("num_sampled_tokens", row.get("num_trained_tokens", 0))),
            num_groups=problems.num_problems if "num_trained_tokens" in row else 0,
            by_loss=learns_without_rewards(row),
            num_masked=len({failure.problem_id for failure in failures}),
        )

    def usage(self, step: int, dollars: float) -> None:
        """Record what the run has used up to the end of a step and its evaluation, a fork's parent
        included: seconds in which it was driven, and dollars, where anything costs some."""
        used = {"driven_s": self._run.manifest.busy_s, **({"dollars": dollars} if dollars else {})}
        total = {name: self._before.get(name, 0.0) + amount for name, amount in used.items()}
        self._run.append(USAGE, {"step": step, **self._before, **total})

    def evaluation(self, evaluation: Evaluation) -> None:
        row = {"step": evaluation.step, **evaluation.metrics}
        self._run.append(EVALUATIONS, row)
        self.alerts.evaluation(row)
        folder = f"evaluations/{evaluation.step:06d}"
        num_shards = self._run.config.num_shards
        if not self._run.config.algorithm.judges_by_loss:
            num_shards = held_out_sets(self._run).num_shards(evaluation.step, num_shards)
        shards = range(num_shards)
        files = [shard_file(folder, "generations", shard) for shard in shards]
        self._look_at_differences(row, files)
        self._quarantine(evaluation.step, "evaluate", evaluation.failures)
        self.timing(evaluation.timing)

    def evaluated(self, step: int) -> bool:
        """Whether the log holds the evaluation after `step` steps."""
        return any(row["step"] == step for row in self._run.logs.read(EVALUATIONS))

    def complete(self) -> None:
        """Check the logs of a run that is done to the byte, and make damaged ones again."""
        self._run.update(step=self._run.manifest.step)
        restore_logs(self._run)

    def report_due(self) -> bool:
        return time.monotonic() - self._reported >= REPORT_EVERY_S

    def report(self) -> None:
        """Write the report of the run as it is on disk; may be called in a thread."""
        self._reported = time.monotonic()
        write_report(self._run)

    def _look_at_differences(self, row: Row, files: Iterable[str]) -> None:
        """Tell of answers that changed, of which the shards in the files have examples."""
        if share := row.get(DIFFERING):
            self.alerts.differed(share, row["step"], next(self._differences(files), "not kept"))

    def _differences(self, files: Iterable[str]) -> Iterator[str]:
        for file in files:
            found = self._run.store.find_record(file, GeneratedShard)
            for group in found[1].groups if found else ():
                for number, made in enumerate(group.completions):
                    if made.differing_answer is not None:
                        where = f"problem {group.problem.id}, generation {number}"
                        yield f"{where}: {made.differing_answer}"

    def _failures(self, rewards: Sequence[RewardRef]) -> Iterator[RewardFailure]:
        for shard in rewards:
            if shard.masked:
                yield from self._run.store.read_record(shard.file, RewardedShard).failures

    def _quarantine(self, step: int, stage: str, failures: Iterable[RewardFailure]) -> None:
        rows = [{"step": step, "stage": stage, **dataclasses.asdict(one)} for one in failures]
        if rows:
            self._run.append(QUARANTINE, *rows)


def _last_usage(run: Run, step: int) -> Row:
    """Return what a fork's parent had used up to the step at which the fork begins."""
    rows = [row for row in run.logs.read(USAGE) if row["step"] <= step] if step else []
    return {name: amount for name, amount in rows[-1].items() if name != "step"} if rows else {}
