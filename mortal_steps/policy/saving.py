"""Checkpoints as an actor writes them: at once, or beside the train steps that follow.

    train 4 | snapshot | train 5           | train 6           | ...
                       | write, hash, sync checkpoint 5 | delete an old one

A snapshot is one copy of what a train step changes (`Stepper.snapshot`). One thread writes it, so
that no two checkpoints are ever written at once, nor one while an older one is being deleted. The
folder appears by one rename, as always: until then the journal leads to the state, from the
checkpoint before.
"""

import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

from mortal_steps.config import CheckpointsConfig
from mortal_steps.errors import CorruptFileError
from mortal_steps.policy.algorithms.base import Snapshot, Stepper
from mortal_steps.policy.on_disk import checkpoints, weights
from mortal_steps.policy.on_disk.checkpoints import CheckpointState
from mortal_steps.policy.publishing import Publisher
from mortal_steps.store import RunStore
from mortal_steps.store.files import writing as in_store
from mortal_steps.store.syncing import BackgroundSync
from mortal_steps.system.threads import BackgroundClock, yield_to_others
from mortal_steps.types import Checkpoint, PolicyVersion

logger = logging.getLogger(__name__)

UNTIL_NOTED = 2
"""The newest checkpoints that stay, whatever is configured, until the run stands at the newest."""


@dataclass(kw_only=True, slots=True)
class ActorState:
    """The state that an actor has in memory: a trainer, and the step of the run at which it is."""

    stepper: Stepper
    step: int
    """Train steps that the state includes."""
    state_id: str
    history_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Writing:
    """A checkpoint that is being written by a thread."""

    step: int
    saved: Future[Checkpoint]
    snapshot_s: float
    """Seconds that the snapshot took."""


class Saver:
    """Writes the checkpoints of one run, and deletes those that are not kept."""

    def __init__(
        self,
        store: RunStore,
        settings: CheckpointsConfig,
        publisher: Publisher,
        fingerprint: str,
        clock: BackgroundClock,
    ) -> None:
        self._store = store
        self._settings = settings
        self._publisher = publisher
        self._fingerprint = fingerprint
        self._thread = ThreadPoolExecutor(
            1, thread_name_prefix="write-checkpoint", initializer=yield_to_others
        )
        self._writing: Writing | None = None
        self._deleting = BackgroundSync(clock)
        self._unnoted: int | None = None
        """Step of the checkpoint at which the run may not stand yet."""

    def begin(self, state: ActorState) -> str | None:
        """Begin to write the actor's state, which may change once this returns. Returns why it
        cannot be written beside training, or None; raises what `finish` raises."""
        began = time.perf_counter()
        self.prune_noted()
        self.finish()
        if (why := state.stepper.why_no_snapshot()) is not None:
            return why
        version = PolicyVersion(state.step)
        snapshot, described = state.stepper.snapshot(), self._describe(state, {})
        under_way = self._publisher.pin(version)
        saved = self._thread.submit(self._write, snapshot, described, under_way)
        snapshot_s = time.perf_counter() - began
        self._writing = Writing(step=state.step, saved=saved, snapshot_s=snapshot_s)
        return None

    def save(self, state: ActorState) -> Checkpoint:
        """Write the actor's state; a whole checkpoint of it is the answer."""
        self.finish()
        self._publisher.finish()
        self._publisher.copy_to_disk(state.step)
        described = self._describe(state, state.stepper.digests())
        return checkpoints.save(self._store, state.stepper, described)

    def save_lost(self, state: ActorState) -> None:
        """Save a state that a train step is about to change, if its due checkpoint was lost while
        written; it is the newest, then."""
        step = state.step
        if not step or step % self._settings.save_steps or self.is_begun(step):
            return
        if all(saved < step for saved in checkpoints.saved_steps(self._store)):
            if not self._publisher.has_versions_before(step):
                return  # a reboot emptied the memory: only the checkpoint before leads to them
            logger.warning("the checkpoint of step %d was not finished: saving it now", step)
            self.save(state)
            self._keep_newest(self._num_until_noted, step)

    def is_begun(self, step: int) -> bool:
        """Whether this checkpoint was begun and has not been waited for yet."""
        return self._writing is not None and self._writing.step == step

    def is_writing(self) -> bool:
        return self._writing is not None and not self._writing.saved.done()

    def take(self, step: int) -> Checkpoint | None:
        """Return the begun checkpoint of `step` once whole, its timing with the snapshot's seconds
        and, as background, those of writing. Raises the `StoreError` that prevented it."""
        if self._writing is None or self._writing.step != step:
            return None
        writing = self._writing
        try:
            self.finish()
        except CorruptFileError as error:
            logger.warning("the checkpoint of step %d is written again: %s", step, error)
            return None
        saved = writing.saved.result()
        timing = replace(
            saved.timing,
            busy_s=writing.snapshot_s,
            background={"write": saved.timing.busy_s},
        )
        return replace(saved, timing=timing)

    def finish(self) -> None:
        """Wait until nothing is being written or deleted; raises the error of what failed."""
        writing, self._writing = self._writing, None
        if writing is not None:
            try:
                writing.saved.result()
            finally:
                self._publisher.unpin(PolicyVersion(writing.step))
        with in_store(self._store.path(checkpoints.FOLDER)):
            self._deleting.finish()

    def settle(self) -> None:
        """Wait until nothing is being written, whether it succeeds or not."""
        if self._writing is not None:
            wait([self._writing.saved])

    def prune(self, step: int) -> None:
        """Delete the checkpoints up to `step` that are not to be kept, beside other work. The one
        before `step` stays until `prune_noted`: a run that is killed before it stands at `step`
        goes on from there."""
        self._keep_newest(self._num_until_noted, step)
        self._unnoted = step

    def prune_noted(self) -> None:
        """Delete what `prune` has left. What follows a checkpoint is asked for when the run stands
        there."""
        step, self._unnoted = self._unnoted, None
        if step is not None and self._settings.keep_last < self._num_until_noted:
            self._keep_newest(self._settings.keep_last, step)

    def prune_completed(self, step: int) -> None:
        """Delete what a run that was completed with `step` does not keep."""
        self._keep_newest(self._settings.num_after_completion, step)
        self._publisher.prune_completed()

    @property
    def _num_until_noted(self) -> int:
        return max(self._settings.keep_last, UNTIL_NOTED)

    def _keep_newest(self, count: int, step: int) -> None:
        keep_best = self._settings.keep_best
        checkpoints.prune(
            self._store, step=step, keep_last=count, keep_best=keep_best, sync=self._deleting
        )

    def _describe(self, state: ActorState, digests: dict[str, str]) -> CheckpointState:
        return CheckpointState(
            step=state.step,
            state_id=state.state_id,
            history_id=state.history_id,
            digests=digests,
            autocast=state.stepper.autocast,
            optimizer_steps=state.stepper.optimizer_steps,
            fingerprint=self._fingerprint,
        )

    def _write(
        self, snapshot: Snapshot, state: CheckpointState, under_way: Sequence[Future[None]]
    ) -> Checkpoint:
        """Write the checkpoint, in the thread, once everything published before it is on disk."""
        with in_store(self._store.path(weights.FOLDER)):
            for each in under_way:
                each.result()
        self._publisher.copy_to_disk(state.step)
        state = replace(state, digests=snapshot.digests())
        return checkpoints.save(self._store, snapshot, state)
