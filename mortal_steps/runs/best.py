"""Which checkpoint of a run is the best, and which of them stay."""

from collections.abc import Mapping, Sequence
from typing import Any

from mortal_steps.config import CheckpointsConfig
from mortal_steps.policy.on_disk import checkpoints
from mortal_steps.runs.manifest import RunManifest, has_merit, merit_of
from mortal_steps.scores import mean_of
from mortal_steps.store import RunStore
from mortal_steps.types import Checkpoint
from mortal_steps.types.identity import RunInfo


def mean_merit(rows: Sequence[Mapping[str, Any]], *, since: int, done: int) -> float | None:
    """Return the mean merit of the steps after `since` until `done`; None if one of them has none,
    or if nothing can be compared."""
    rows = [row for row in rows if since < row["step"] <= done and has_merit(row)]
    merits = [merit_of(row) for row in rows]
    return None if None in merits else mean_of(merits)


def scored_since(info: RunInfo, every: int, done: int) -> int:
    """Return after which step the steps begin whose mean merit a checkpoint after `done` steps is
    compared by: those since the checkpoint before. Those of a fork's parent, which may have had
    other rewards, have a part in no checkpoint but the one that the fork begins with."""
    since, parent = (done - 1) // every * every, info.parent
    if parent is None or parent.fingerprint == info.fingerprint or done <= parent.step:
        return since
    return max(since, parent.step)


def kept(
    known: Sequence[Checkpoint], saved: Checkpoint, best_step: int | None, keep: CheckpointsConfig
) -> tuple[tuple[Checkpoint, ...], list[int]]:
    """Return the checkpoints that stay once one is saved, and the steps of the last ones until
    then. Those of later steps stay: the run was set back, and passes these steps again."""
    earlier = [each for each in known if each.step < saved.step] + [saved]
    later = [each for each in known if each.step > saved.step]
    last = earlier[-keep.keep_last :]
    stays = [*last, *later]
    found = tuple(
        each
        for each in earlier + later
        if each in stays or (keep.keep_best and each.step == best_step)
    )
    return found, [each.step for each in last]


def kept_at_the_end(
    known: tuple[Checkpoint, ...], best_step: int | None, keep: CheckpointsConfig
) -> tuple[Checkpoint, ...]:
    """Return the checkpoints that a completed run keeps."""
    best = best_step if keep.keep_best else None
    last = known[-keep.num_after_completion :]
    return tuple(each for each in known if each in last or each.step == best)


def mend_mark(store: RunStore, manifest: RunManifest) -> None:
    """Mark on disk, where the actor reads it, which checkpoint is the best."""
    step, score = manifest.best_step, manifest.best_reward
    marked = checkpoints.find_best(store)
    if step is None or score is None:
        checkpoints.mark_none_best(store)
    elif marked is None or marked.step != step:
        checkpoints.mark_best(store, step, score)
