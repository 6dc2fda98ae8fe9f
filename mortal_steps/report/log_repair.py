"""Makes damaged logs again from the records from which they were written."""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from mortal_steps.config import RewardsConfig
from mortal_steps.errors import CorruptFileError
from mortal_steps.policy import journal
from mortal_steps.policy.batches import Batch
from mortal_steps.report.evaluations import as_columns, evaluation_scores, mean_metrics
from mortal_steps.report.held_out import answers_in
from mortal_steps.report.report_files import report_is_behind, write_report
from mortal_steps.runs.lease import is_driven
from mortal_steps.runs.logs import EMPTY, EVALUATIONS, LOGS, METRICS, SELECTIONS
from mortal_steps.runs.manifest import UNSCORED
from mortal_steps.runs.run import Run, held_out_sets
from mortal_steps.scores import reward_names
from mortal_steps.selection.table import ALL
from mortal_steps.store.records import shard_file
from mortal_steps.types import RewardedShard, RewardRef, StepResult

logger = logging.getLogger(__name__)

ENVIRONMENT = "environment"
"""What masked the episodes whose environment failed."""

Row = Mapping[str, Any]


def metrics_row(rewards: RewardsConfig | None, result: StepResult, batch: Batch) -> Row:
    """Return a step's line of metrics.jsonl, a pure function of its records. `rewards` are those
    that score what is trained on; None: nothing does."""
    shards = batch.shards
    if not shards:
        reward = result.metrics.get("reward")
        return {**result.metrics, "reward": reward, **batch.counts(), **_identified(result)}
    num_scored = sum(shard.num_scored for shard in shards)
    mean = sum(shard.reward_sum for shard in shards) / max(num_scored, 1)
    row = {
        **result.metrics,
        **(_failure_counts(rewards, shards) if rewards else {}),
        # TRL's own where it has one: its float32 mean differs from ours in the last digits.
        "reward": result.metrics.get("reward", mean) if num_scored else None,
        **({"num_scored": num_scored} if rewards else {UNSCORED: _num_completions(shards)}),
        "num_sampled_tokens": sum(shard.generation.num_tokens for shard in shards),
        "policy_version": shards[0].generation.policy_version,
        **batch.counts(),
        **_identified(result),
    }
    logged = mean_metrics((shard.metrics, shard.generation.num_completions) for shard in shards)
    return row | as_columns(row, logged)


def _num_completions(shards: Sequence[RewardRef]) -> int:
    return sum(shard.generation.num_completions for shard in shards)


def _identified(result: StepResult) -> Row:
    return {
        "step": result.step + 1,
        "optimizer_steps": result.optimizer_steps,
        "state_id": result.state_id,
    }


def _failure_counts(rewards: RewardsConfig, shards: Sequence[RewardRef]) -> dict[str, int]:
    """Failed calls and masked completions of each function: all of them where failures are masked,
    so that every step has the same keys; else what is not 0."""
    always = rewards.on_error == "mask"
    counts: dict[str, int] = {}
    environment = {name for shard in shards for name in shard.masked} & {ENVIRONMENT}
    for name in (*reward_names(rewards), *environment):
        found = {
            f"rewards/{name}/failed_calls": sum(r.failed_calls.get(name, 0) for r in shards),
            f"rewards/{name}/masked": sum(r.masked.get(name, 0) for r in shards),
        }
        counts |= {key: count for key, count in found.items() if count or always}
    return counts


def restore_logs(run: Run) -> None:
    """Bring the logs back to the run's step; damaged metrics and evaluations are made again from
    whole records, of anything else the readable lines are kept."""
    marks = run.manifest.logs if run.manifest.step else dict.fromkeys(LOGS, EMPTY)
    damaged = run.logs.cut(marks)
    for name in damaged:
        path = run.store.path(name)
        readable = [row for row in run.logs.read(name) if row["step"] <= run.manifest.step]
        rows = _again(run, name, readable, run.manifest.step)
        if rows or path.exists():  # else the run has nothing to say there
            logger.warning("%s is damaged and made again as far as it can be", path)
            run.logs.replace(name, rows)
    if damaged:
        run.update(step=run.manifest.step)


def mend_complete(run: Run) -> None:
    """Mend a complete run's damaged logs, and write the report that the process which completed it
    was killed before or in, unless that one still writes it. Raises `StoreError` if logs are
    damaged and it is driven."""
    mends_report = report_is_behind(run) and not is_driven(run.store)
    if not (mends_report or run.logs.damaged(run.manifest.logs)):
        return
    run.acquire()
    try:
        restore_logs(run)
        write_report(run)
    finally:
        run.release()


def _again(run: Run, name: str, readable: list[dict[str, Any]], done: int) -> Sequence[Row]:
    """Return a row for each step, made from its records if possible, else the readable line."""
    lines = {row["step"]: row for row in readable}
    if name == METRICS:
        made = {step: _metrics_of(run, step) for step in range(1, done + 1)}
    elif name == EVALUATIONS:
        # A fork has its parent's lines without their records.
        steps = {*lines, *(number for number, _ in run.store.numbered("evaluations"))}
        made = {step: _evaluation_of(run, step) for step in sorted(steps) if step <= done}
    elif name == SELECTIONS:
        # A fork that began to know problems anew has no lines of its parent's steps.
        steps = {*lines, *range(run.info.first_step + 1, done + 1)}
        made = {step: _selection_of(run, step) for step in sorted(steps)}
        if run.config.selection.type == ALL:  # there are none, but of a source of the user's own
            made = {step: row for step, row in made.items() if row or step in lines}
    else:
        return readable
    rows = []
    for step, row in made.items():
        if found := row or lines.get(step):
            rows.append(found)
        else:
            logger.warning("%s: the line of step %d is lost", run.store.path(name), step)
    return rows


def _metrics_of(run: Run, step: int) -> Row | None:
    batch, result = _batch_of(run, step), journal.find_result(run.store, step - 1)
    if batch is None or result is None:
        return None
    return metrics_row(run.config.training_rewards, result, batch)


def _selection_of(run: Run, step: int) -> Row | None:
    batch = _batch_of(run, step)
    chosen = batch.selection if batch else None
    return None if chosen is None else {"step": step, **dataclasses.asdict(chosen)}


def _batch_of(run: Run, step: int) -> Batch | None:
    try:
        entry = journal.find_entry(run.store, step - 1)
    except CorruptFileError:
        return None
    return entry.request.batch if entry else None


def _evaluation_of(run: Run, step: int) -> Row | None:
    if run.config.algorithm.judges_by_loss:
        path, lost = f"evaluations/{step:06d}/metrics.json", "its line is taken from the log"
        judged = run.store.find_whole(path, dict[str, float], lost)
        return None if judged is None else {"step": step, **judged[1]}
    folder, held_out = f"evaluations/{step:06d}", held_out_sets(run)
    num_shards = held_out.num_shards(step, run.config.num_shards)
    names = [shard_file(folder, "rewards", shard) for shard in range(num_shards)]
    try:
        found = [run.store.find_record(name, RewardedShard) for name in names]
        answers = answers_in(run.store, folder, held_out, step)
    except CorruptFileError:
        return None
    shards = [record[1] for record in found if record is not None]
    if len(shards) < num_shards or answers is None or not (shards or answers):
        return None
    return {"step": step, **evaluation_scores(held_out, step, shards, answers)}
