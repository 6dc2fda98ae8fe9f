"""Delete rollouts that the configuration does not keep: `checkpoints.keep_rollouts`.

    steps/000012/       batch.json, generations-*, rewards-* are deleted; journal.json and
                        result.json stay
    steps/pruned.json   up to which step, written before anything is deleted

What stays is a few kilobytes per step: the chain of state ids, the lines of the logs and the costs
of each step can still be checked and made again. Rollouts are kept for every step that is replayed
from one of the newest `checkpoints.keep_last` checkpoints. There have to be two of these, because a
run that is killed while it records the newest one continues from the one before. An older best
checkpoint can be restored and forked without any rollouts. If all newer checkpoints are damaged,
the steps after it are sampled again with the same seeds.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from mortal_steps.errors import CorruptFileError
from mortal_steps.store import RunStore

RECORD_FILE = "steps/pruned.json"
KEPT = {"journal.json", "result.json"}
FEWEST_CHECKPOINTS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Pruned:
    """Which rollouts were deleted on purpose."""

    before: int
    """The rollouts of all steps before this one."""


def prune_rollouts(
    store: RunStore, *, done: int, keep: int | None, checkpoints: Sequence[int]
) -> None:
    """Delete the rollouts of all but the newest `keep` of `done` steps, except those that a
    checkpoint needs. `checkpoints` are the steps at which the run can continue, oldest first. This
    may be killed at any moment: the next call finds what is left."""
    if keep is None or len(checkpoints) < FEWEST_CHECKPOINTS:
        return
    before = max(pruned_before(store), min(done - keep, checkpoints[0]))
    if before <= 0:
        return
    store.write_record(RECORD_FILE, Pruned(before=before), Pruned)
    for step, folder in store.numbered("steps"):
        if step < before:
            for path in [path for path in folder.iterdir() if path.name not in KEPT]:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def pruned_before(store: RunStore) -> int:
    """Return the first step whose rollouts should exist; a damaged record counts as none."""
    try:
        found = store.find_record(RECORD_FILE, Pruned)
    except CorruptFileError:
        return 0
    return found[1].before if found else 0
