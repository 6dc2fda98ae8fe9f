"""Rollouts that the configuration lets go: `checkpoints.keep_rollouts`.

    steps/000012/    batch.json, generations-*, rewards-* go; journal.json and result.json stay
    steps/pruned.json    up to where, written before anything goes

What stays is a few kilobytes a step: the chain of state ids, the lines of the logs and what each
step cost can still be checked and made again. No step goes that one of the newest
`checkpoints.keep_last` checkpoints is replayed through; of those there have to be two, for a run
that is killed while it notes the newest goes on from the one before.

A best checkpoint that is older is restored, and forked, without any rollouts. Should all newer ones
be damaged, the steps after it are sampled again, with the same seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.errors import CorruptFileError
from mortal_steps.store import RunStore

RECORD_FILE = "steps/pruned.json"
KEPT = {"journal.json", "result.json"}
FEWEST_CHECKPOINTS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Pruned:
    """Which rollouts are not there on purpose."""

    before: int
    """Of all steps before this one."""


def prune_rollouts(
    store: RunStore, *, done: int, keep: int | None, checkpoints: Sequence[int]
) -> None:
    """Delete the rollouts of all but the newest `keep` of `done` steps, as far as no checkpoint
    needs them; `checkpoints` are the steps of those that a run may go on from, oldest first.

    May be killed anywhere: the next call finds what is left.
    """
    if keep is not None and len(checkpoints) >= FEWEST_CHECKPOINTS:
        prune_before(store, min(done - keep, checkpoints[0]))


def prune_before(store: RunStore, before: int) -> None:
    """Delete the rollouts of all steps before this one, and finish what an earlier call began."""
    before = max(pruned_before(store), before)
    if before <= 0:
        return
    store.write_record(RECORD_FILE, Pruned(before=before), Pruned)
    for path in files_before(store, before):
        path.unlink()


def files_before(store: RunStore, before: int) -> Iterator[Path]:
    """The rollouts that are there of all steps before this one."""
    for step, folder in store.numbered("steps"):
        if step < before:
            yield from [path for path in folder.iterdir() if path.name not in KEPT]


def pruned_before(store: RunStore) -> int:
    """The first step whose rollouts are to be there; a damaged record tells nothing, and the next
    one is written over it."""
    try:
        found = store.find_record(RECORD_FILE, Pruned)
    except CorruptFileError:
        return 0
    return found[1].before if found else 0
