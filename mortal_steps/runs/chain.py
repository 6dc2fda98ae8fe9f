"""Checks the chain of state ids through a run's records."""

from __future__ import annotations

from mortal_steps.policy import journal
from mortal_steps.policy.journal import JournalEntry
from mortal_steps.policy.on_disk.checkpoints import CheckpointState
from mortal_steps.types import StepResult
from mortal_steps.types.identity import RunInfo

Ids = tuple[str | None, str]
"""The chained id of a state, if it is known, and the chained id of the batches that led to it."""

PARTS = (
    "is of other weights than the step before it left: the chain parts here, after a replay on "
    "other hardware or with other versions of the libraries"
)


def first_ids(info: RunInfo) -> Ids:
    """Return the ids with which a run begins."""
    parent, own = info.parent, info.fingerprint
    if parent is None:
        first = journal.first_state_id(own)
        return first, first
    return (
        journal.forked_state_id(parent.state_id, parent.fingerprint, own),
        journal.forked_state_id(parent.history_id, parent.fingerprint, own),
    )


def broken_link(
    before: Ids, entry: JournalEntry | None, result: StepResult, fingerprint: str
) -> str | None:
    """Return why a step does not follow from the one before it: other batches, or other weights."""
    state_id, history_id = before
    batch, trained = result.batch_sha256, result.weights_digest
    history = journal.next_state_id(history_id, batch, fingerprint)
    if history != result.history_id or (entry and entry.batch_sha256 != batch):
        return "does not follow from the step before it"
    if state_id is None:
        return None
    follows = journal.next_state_id(state_id, batch, fingerprint, trained)
    return None if follows == result.state_id else PARTS


def other_state(saved: CheckpointState, result: StepResult) -> str | None:
    """Return why a checkpoint does not follow from a step: it holds another state than the step
    left."""
    if saved.state_id != result.state_id:
        return f"is of another state than step {result.step} led to"
    if saved.digests["weights"] != result.weights_digest:
        return f"holds other weights than step {result.step} left, whose state it says it is"
    return None
