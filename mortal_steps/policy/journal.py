"""What the actor was asked for and what came of it: the records a lost actor is rebuilt from.

    steps/000012/journal.json   which shards step 12 trains on, written before it is taken
    steps/000012/result.json    what it gave, written after

Also: the batch those shards make, and the chain of state ids

    id(0) = sha256(fingerprint)
    id(t+1) = sha256(id(t), digest of batch t, fingerprint, digest of the weights after step t)

Beside it runs the history id, the same chain without the weights: where two states differ, it says
whether they had other batches or, on other hardware as a rule, gave other weights.

A fork with a configuration of its own begins at sha256(the parent's id, fingerprint).
"""

import hashlib
import json
import logging
from dataclasses import dataclass

from mortal_steps.errors import ActorStateError, CorruptFileError
from mortal_steps.policy.batches import TrainRequest
from mortal_steps.store import RunStore
from mortal_steps.types import StepResult

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class JournalEntry:
    """A step that the actor took or was about to take."""

    batch_sha256: str
    """Digest of the batch that the request's shards make."""
    request: TrainRequest


def write_entry(store: RunStore, entry: JournalEntry) -> None:
    store.write_record(_path(entry.request.step, "journal.json"), entry, JournalEntry)


def find_entry(store: RunStore, step: int) -> JournalEntry | None:
    """Return a step's committed entry, if any; raises `CorruptFileError`."""
    found = store.find_record(_path(step, "journal.json"), JournalEntry)
    return found[1] if found else None


def check_entry(store: RunStore, step: int) -> None:
    """Raise `CorruptFileError` unless the entry and every shard it names are whole."""
    entry = find_entry(store, step)
    if entry is None:
        raise CorruptFileError(f"{store.path(_path(step, 'journal.json'))} is missing")
    for file in entry.request.batch.files():
        store.check_record(file)


def repair_entry(store: RunStore, entry: JournalEntry) -> None:
    """Commit the entry of a step taken before, unless one that names the same files is there:
    scores made again may have other side metrics."""
    try:
        there = find_entry(store, entry.request.step)
    except CorruptFileError as error:
        logger.warning("the journal entry is written again: %s", error)
        there = None
    if there is None or there.request.batch.files() != entry.request.batch.files():
        write_entry(store, entry)


def write_result(store: RunStore, result: StepResult) -> None:
    store.write_record(_path(result.step, "result.json"), result, StepResult)


def find_result(store: RunStore, step: int) -> StepResult | None:
    """Return a step's committed result, if any; a damaged one is logged and missing."""
    otherwise = f"step {step} is taken again if it is needed"
    found = store.find_whole(_path(step, "result.json"), StepResult, otherwise)
    return found[1] if found else None


def check_replay(recorded: StepResult, replayed: StepResult) -> None:
    """Compare a replayed step with its record; other numbers are logged. Raises `ActorStateError`
    if the record belongs to another history."""
    step, batches = recorded.step, recorded.history_id
    if batches != replayed.history_id or recorded.batch_sha256 != replayed.batch_sha256:
        raise ActorStateError(
            f"replaying step {step} leads to history {replayed.history_id[:12]}, its result "
            f"is of {batches[:12]}; journal and results of this run do not belong together"
        )
    if recorded.weights_digest != replayed.weights_digest:
        logger.warning(
            "replaying step %d on the same batch gave other weights than recorded (%s, not %s): "
            "other hardware, or other versions of the libraries. The run continues with these, "
            "but its bits are no longer the same; `mortal verify` names the step where they part",
            step,
            replayed.weights_digest[:12],
            recorded.weights_digest[:12],
        )
    before, now = recorded.metrics, replayed.metrics
    # Another version may count more or fewer of them.
    if changed := {name: now[name] for name in now if before.get(name, now[name]) != now[name]}:
        logger.warning("replaying step %d gave other numbers than recorded: %s", step, changed)


def first_state_id(fingerprint: str) -> str:
    return hashlib.sha256(fingerprint.encode()).hexdigest()


def forked_state_id(state_id: str, parent_fingerprint: str, fingerprint: str) -> str:
    """Id of the state that a fork begins with. It is the parent's if nothing else was changed."""
    if fingerprint == parent_fingerprint:
        return state_id
    return hashlib.sha256(f"{state_id} {fingerprint}".encode()).hexdigest()


def next_state_id(
    state_id: str, batch_sha256: str, fingerprint: str, weights_digest: str | None = None
) -> str:
    """Id after one more batch; without a weights digest, that of the history."""
    parts = [state_id, batch_sha256, fingerprint, weights_digest]
    return hashlib.sha256(" ".join(filter(None, parts)).encode()).hexdigest()


def batch_digest(store: RunStore, request: TrainRequest) -> str:
    """Digest of a step and the content of its batch."""
    given = {"step": request.step, **request.batch.content(store)}
    return hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()


def _path(step: int, name: str) -> str:
    return f"steps/{step:06d}/{name}"
