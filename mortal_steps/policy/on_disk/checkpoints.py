"""Whole states of the actor: `checkpoints/step-<n>/`, n train steps done.

checkpoints/
  step-100/     Stepper.save_state, and state.json (`CheckpointState`)
  best.json     the checkpoint to keep whatever follows, and its score (`BestCheckpoint`)
"""

import dataclasses
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.errors import ActorStateError, CheckpointMismatchError, CorruptFileError
from mortal_steps.policy.algorithms.base import Snapshot
from mortal_steps.policy.on_disk import weights
from mortal_steps.store import FORMAT, RunStore, check_format
from mortal_steps.store.syncing import BackgroundSync
from mortal_steps.types import Checkpoint, StageTiming

logger = logging.getLogger(__name__)

FOLDER = "checkpoints"
STATE_FILE = "state.json"
BEST_FILE = f"{FOLDER}/best.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointState:
    """Which step of the run a checkpoint belongs to, and what it contains."""

    step: int
    """Train steps done."""
    state_id: str
    """Chained id of the state."""
    history_id: str
    """Chained id of the batches that led to it."""
    digests: dict[str, str]
    """Digest of each part, `weights` among them."""
    autocast: bool
    """Whether training ran under bfloat16 autocast."""
    optimizer_steps: int
    """Optimizer updates done."""
    fingerprint: str
    """Fingerprint of the run, as in run.json."""
    forked: bool = False
    """Whether a run with another configuration wrote this state. Its hyperparameters and its place
    in the schedule are then not this run's."""
    format: int = FORMAT
    """Format of the folder's files; see store/formats.py."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BestCheckpoint:
    """The checkpoint with the best score so far."""

    step: int
    score: float
    """Mean reward of its evaluation or, in a run without any, of the training steps before it."""


def save(store: RunStore, policy: Snapshot, state: CheckpointState) -> Checkpoint:
    """Commit the policy's state; a whole checkpoint of the same state is the answer."""
    started = time.perf_counter()
    there = find(store, state.step)
    if there is not None and there.state_id == state.state_id:
        return there
    published = weights.path_of(state.step)
    with store.committing_folder(path_of(state.step), shared_with=[published]) as folder:
        policy.save_state(folder)
        (folder / STATE_FILE).write_text(json.dumps(dataclasses.asdict(state)), encoding="utf-8")
    saved = _reference(store, state)
    timing = dataclasses.replace(
        saved.timing,
        busy_s=time.perf_counter() - started,
        num_bytes=store.folder_bytes(saved.path),
    )
    return dataclasses.replace(saved, timing=timing)


def find(store: RunStore, step: int) -> Checkpoint | None:
    """Return the checkpoint of `step` if whole; a damaged one is logged."""
    path = path_of(step)
    if not store.path(path).exists():
        return None
    try:
        store.verify_folder(path, store.folder_digest(path))
        return _reference(store, read_state(store, path))
    except CorruptFileError as error:
        logger.warning("checkpoint %s cannot be used and is passed over: %s", path, error)
        return None


def newest_whole(store: RunStore, at_most: int | None = None) -> Checkpoint | None:
    """Return the newest whole checkpoint of at most `at_most` steps."""
    for step in reversed(saved_steps(store)):
        if at_most is None or step <= at_most:
            found = find(store, step)
            if found is not None:
                return found
    return None


def check_restored(folder: Path, state: CheckpointState, restored: Mapping[str, str]) -> None:
    """Compare the digests in a checkpoint with those of the state restored from it. Raises
    `CheckpointMismatchError`. A fork has its own hyperparameters and schedule, and may have parts
    that its parent did not have."""
    saved = state.digests
    if state.forked:
        saved = {**restored, **saved, "schedule": restored.get("schedule", "")}
    other = [part for part in restored if saved.get(part) != restored[part]]
    if other:
        raise CheckpointMismatchError(
            f"{folder} restores to another state than was saved there: its {' and '.join(other)} "
            f"{'differs' if len(other) == 1 else 'differ'}. Continue with the versions of MORTAL "
            "and its libraries that wrote it, or delete the folder: the run then continues from an "
            "older checkpoint"
        )


def load(store: RunStore, checkpoint: Checkpoint, *, fingerprint: str) -> Path:
    """Return a checkpoint's verified folder. Raises `CorruptFileError`, and `ActorStateError` where
    another configuration wrote it."""
    folder = store.verify_folder(checkpoint.path, checkpoint.sha256)
    written_by = read_state(store, checkpoint.path).fingerprint
    if written_by != fingerprint:
        raise ActorStateError(
            f"{folder} was written with configuration {written_by[:12]}, this run has "
            f"{fingerprint[:12]}; continue with the run's own config.toml, or start another run"
        )
    return folder


def saved_steps(store: RunStore) -> list[int]:
    """Return steps of the checkpoints on disk, oldest first, whole or not."""
    names = [path.name.removeprefix("step-") for path in store.path(FOLDER).glob("step-*")]
    return sorted(int(name) for name in names if name.isdigit())


def mark_best(store: RunStore, step: int, score: float) -> None:
    store.write_record(BEST_FILE, BestCheckpoint(step=step, score=score), BestCheckpoint)


def mark_none_best(store: RunStore) -> None:
    store.path(BEST_FILE).unlink(missing_ok=True)


def find_best(store: RunStore) -> BestCheckpoint | None:
    """Return the marked best checkpoint, if any; a damaged mark is logged."""
    found = store.find_whole(BEST_FILE, BestCheckpoint, "the best checkpoint is not known")
    return found[1] if found else None


def prune(
    store: RunStore,
    *,
    step: int,
    keep_last: int,
    keep_best: bool,
    sync: BackgroundSync | None = None,
) -> None:
    """Delete all checkpoints up to `step` but the newest `keep_last` and, if asked for, the best
    one. With `sync`, their files are deleted beside other work. Later checkpoints date from before
    the run went back; the run will reach them again."""
    steps = [saved for saved in saved_steps(store) if saved <= step]
    keep = set(steps[-keep_last:])
    best = find_best(store)
    if keep_best and best is not None:
        keep.add(best.step)
    for step in steps:
        if step not in keep:
            store.remove_folder(path_of(step), sync=sync)


def path_of(step: int) -> str:
    return f"{FOLDER}/step-{step}"


def read_state(store: RunStore, path: str) -> CheckpointState:
    """Return a checkpoint's own state; raises `CorruptFileError`, `NewerFormatError`."""
    file = store.path(path) / STATE_FILE
    try:
        content = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise CorruptFileError(f"{file} is missing") from None
    check_format(file, content.get("format", 1))
    return CheckpointState(**content)


def _reference(store: RunStore, state: CheckpointState) -> Checkpoint:
    path = path_of(state.step)
    return Checkpoint(
        step=state.step,
        path=path,
        sha256=store.folder_digest(path),
        state_id=state.state_id,
        timing=StageTiming(stage="checkpoint", step=state.step),
    )
