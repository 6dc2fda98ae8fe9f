"""`manifest.json`: where a run stands. The file is replaced as a whole after every step.

Everything important in it can be derived from the rest of the run directory, so a damaged manifest
is made again from the newest whole checkpoint.
"""

import dataclasses
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mortal_steps.errors import CorruptFileError
from mortal_steps.policy.on_disk import checkpoints
from mortal_steps.runs.logs import EVALUATIONS, USAGE, LogMark, prefix_digest, read_lines
from mortal_steps.store import RunStore
from mortal_steps.types import Checkpoint, Evaluation, FinalModel, StageTiming

logger = logging.getLogger(__name__)

MANIFEST_FILE = "manifest.json"

Status = Literal["created", "running", "completed", "failed", "stopped"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunManifest:
    """Where a run stands."""

    status: Status
    step: int = 0
    """Train steps done."""
    logs: Mapping[str, LogMark] = field(default_factory=dict)
    """What each log was when `step` was reached, by file name."""
    checkpoints: tuple[Checkpoint, ...] = ()
    """Whole states to go on from, oldest first."""
    best_step: int | None = None
    """Step of the checkpoint kept for its reward (`Run.score`)."""
    best_reward: float | None = None
    evaluation: Evaluation | None = None
    """The last one."""
    final: FinalModel | None = None
    error: str | None = None
    """Why the run failed or stopped."""
    pace_s: float | None = None
    """Seconds per train step over the last steps of the process that drives it."""
    busy_s: float = 0.0
    """Seconds in which processes took its steps, as far as that was counted."""
    attempts: int = 0
    """How many processes have begun to drive the run, as far as that was counted."""
    ui_url: str | None = None
    """Page of the last flow run in the Prefect UI."""
    updated_at: float = field(default_factory=time.time)


def read_manifest(store: RunStore, *, num_eval_problems: int, first_step: int = 0) -> RunManifest:
    """Return the manifest of a run that began at `first_step`; a missing or damaged one is made
    again, in memory. In a run with evaluations, the best checkpoint is one of those evaluated."""
    try:
        found = store.find_record(MANIFEST_FILE, RunManifest)
    except CorruptFileError as error:
        manifest = rebuild_manifest(store, num_eval_problems, first_step)
        logger.warning("%s; made again from the checkpoints, at step %d", error, manifest.step)
    else:
        manifest = found[1] if found else rebuild_manifest(store, num_eval_problems, first_step)
    return with_evaluated_best(store, manifest, first_step)


def with_evaluated_best(store: RunStore, manifest: RunManifest, first_step: int) -> RunManifest:
    """Return the manifest without a best checkpoint that was never evaluated, if the run has
    evaluations: MORTAL 0.1.0 compared such a one by its training reward. The best of the evaluated
    checkpoints that are left takes its place. A log that is damaged, until it is made again, proves
    nothing."""
    best, mark = manifest.best_step, manifest.logs.get(EVALUATIONS)
    if best is None or best > manifest.step or mark is None:
        return manifest
    if prefix_digest(store.path(EVALUATIONS), mark.length) != mark.sha256:
        return manifest
    rows = read_lines(store.path(EVALUATIONS), needs=("step",))
    rewards = {row["step"]: merit for row in rows if (merit := merit_of(row)) is not None}
    if best in rewards or not any(row["step"] > first_step for row in rows):
        return manifest
    evaluated = [
        saved.step
        for saved in manifest.checkpoints
        if first_step < saved.step <= manifest.step and saved.step in rewards
    ]
    chosen = max(evaluated, key=rewards.__getitem__, default=None)
    reward = None if chosen is None else rewards[chosen]
    return dataclasses.replace(manifest, best_step=chosen, best_reward=reward)


UNSCORED = "num_unscored"
"""In the metrics of a step: its completions, where nobody is asked to score them."""


def merit_of(row: Mapping[str, Any]) -> float | None:
    """Return what a step or an evaluation is compared by, of which more is better: its reward or,
    where nothing is learned from rewards, its loss with the other sign. None: it has no such
    number, or it is not finite."""
    merit: float | None = row.get("reward")
    if merit is None and has_merit(row):
        merit = -row["loss"]
    return merit if merit is not None and math.isfinite(merit) else None


def has_merit(row: Mapping[str, Any]) -> bool:
    """Whether a step or an evaluation has what `merit_of` asks for, finite or not."""
    by_loss = learns_without_rewards(row) or "reward" not in row
    return row.get("reward") is not None or ("loss" in row and by_loss)


def learns_without_rewards(row: Mapping[str, Any]) -> bool:
    """Whether a step learned from prepared rows, or from completions that nobody scored: it is
    judged by its loss."""
    return "num_prepared_rows" in row or UNSCORED in row


def rebuild_manifest(store: RunStore, num_eval_problems: int, first_step: int = 0) -> RunManifest:
    """Return the manifest of a run at its newest whole checkpoint, or at its beginning."""
    whole = [checkpoints.find(store, step) for step in checkpoints.saved_steps(store)]
    known = tuple(checkpoint for checkpoint in whole if checkpoint is not None)
    step = known[-1].step if known else 0
    best = checkpoints.find_best(store)
    return RunManifest(
        status="running" if store.path("steps").exists() else "created",
        step=step,
        checkpoints=known,
        best_step=best.step if best else None,
        best_reward=best.score if best else None,
        evaluation=last_evaluation(store, step, num_eval_problems),
        busy_s=_driven_s(store, step) - _driven_s(store, first_step),
    )


def _driven_s(store: RunStore, step: int) -> float:
    """Return the seconds in which the run and those that it goes on from were driven until then."""
    rows = read_lines(store.path(USAGE), needs=("step", "driven_s"))
    return max((row["driven_s"] for row in rows if row["step"] <= step), default=0.0)


def last_evaluation(store: RunStore, step: int, num_problems: int) -> Evaluation | None:
    rows = [
        row for row in read_lines(store.path(EVALUATIONS), needs=("step",)) if row["step"] <= step
    ]
    if not rows:
        return None
    metrics = {name: value for name, value in rows[-1].items() if name != "step"}
    done = rows[-1]["step"]
    timing = StageTiming(stage="evaluate", step=done)
    return Evaluation(step=done, num_problems=num_problems, metrics=metrics, timing=timing)
