"""The one state of the run that an actor holds in memory, and how it is brought to a step.

The state is restored from the newest whole checkpoint, and the steps in the journal after that are
replayed. New steps are taken in the same way; the only difference is the end, since a replay is
compared with what was committed the first time.
"""

import gc
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from mortal_steps.data.prepared import ORDERS, REFERENCE
from mortal_steps.errors import ActorStateError
from mortal_steps.policy import journal
from mortal_steps.policy.algorithms.base import Stepper
from mortal_steps.policy.journal import JournalEntry
from mortal_steps.policy.on_disk import checkpoints, recovery, weights
from mortal_steps.policy.plan import TrainerPlan
from mortal_steps.policy.publishing import Publisher
from mortal_steps.policy.saving import ActorState, Saver
from mortal_steps.schedule import train_seed
from mortal_steps.store import RunStore
from mortal_steps.system.threads import BackgroundClock
from mortal_steps.types import Checkpoint, StageTiming, StepResult

logger = logging.getLogger(__name__)

MakeStepper = Callable[[bool | None], Stepper]
"""Makes the run's trainer. The argument is whether it computes under bfloat16 autocast; where that
is None, the configuration and the device decide."""


class StateManager:
    """The actor's state: None before there is one, and after it was discarded."""

    def __init__(
        self,
        store: RunStore,
        make_stepper: MakeStepper,
        publisher: Publisher,
        saver: Saver,
        clock: BackgroundClock,
        *,
        plan: TrainerPlan,
        fingerprint: str,
    ) -> None:
        self._store = store
        self._make_stepper = make_stepper
        self._publisher = publisher
        self._saver = saver
        self._clock = clock
        self._plan = plan
        self._fingerprint = fingerprint
        self.parts = BackgroundClock()
        """Counts the seconds of a train step that its parts took."""
        self.state: ActorState | None = None
        self._journal = ThreadPoolExecutor(1, thread_name_prefix="journal")

    def bring_to(self, step: int) -> ActorState:
        """Bring the state after `step` steps into memory, from a checkpoint by replay. Raises
        `ActorStateError` if a step before it was never taken."""
        if self.state is None or self.state.step != step:
            self._saver.settle()  # what is being written may be the newest, and is no leftover
            saved = checkpoints.newest_whole(self._store, at_most=step)
            nearest = saved.step if saved else 0
            if self.state is None or not nearest <= self.state.step <= step:
                self.state = self._restored(saved)
        state = self.state
        while state.step < step:
            entry = journal.find_entry(self._store, state.step)
            if entry is None:
                raise ActorStateError(
                    f"the state after {step} train steps is out of reach: step {state.step} "
                    f"was never taken in {self._store.root}"
                )
            self._take(state, entry)
        return state

    def take(self, entry: JournalEntry) -> StepResult:
        """Take the step of a journal entry; commit the entry and the result."""
        return self._take(self.bring_to(entry.request.step), entry)

    def _take(self, state: ActorState, entry: JournalEntry) -> StepResult:
        """Train on a batch and commit the result, or compare it with the committed one; a failure
        discards the state."""
        self._saver.save_lost(state)
        step = entry.request.step
        batch = entry.request.batch.read(self._store, step, self._plan)
        recorded = journal.find_result(self._store, step)
        logger.info("%s step %d", "taking" if recorded is None else "replaying", step)
        # Beside training: nothing of a step counts before its result is committed.
        noting: Future[None] | None = None
        if recorded is None:
            noting = self._journal.submit(self._note, entry)
        try:
            result = self._train(state, batch, entry.batch_sha256)
            if recorded is not None:
                journal.check_replay(recorded, result)
                return recorded
            if noting is not None:
                noting.result()
            if entry.request.publish:
                with self.parts.running("publish"):
                    published = self._publisher.publish(state.stepper, state.step, replace=True)
                    self._publisher.prune(result.step)
                result = replace(result, weights=published)
            journal.write_result(self._store, result)
            return result
        except BaseException:
            self._discard()
            raise

    def _note(self, entry: JournalEntry) -> None:
        with self._clock.running("journal"):
            journal.write_entry(self._store, entry)

    def _train(self, state: ActorState, batch: Any, batch_sha256: str) -> StepResult:
        """Train on a batch; return the record, without the version published."""
        step, stepper = state.step, state.stepper
        metrics = stepper.train_step(batch, seed=train_seed(self._plan.seed, step))
        trained, context = stepper.weights_digest(), (batch_sha256, self._fingerprint)
        state.step = step + 1
        state.history_id = journal.next_state_id(state.history_id, *context)
        state.state_id = journal.next_state_id(state.state_id, *context, trained)
        return StepResult(
            step=step,
            metrics=metrics,
            optimizer_steps=stepper.optimizer_steps,
            random_sha256=stepper.random_digest(),
            batch_sha256=batch_sha256,
            state_id=state.state_id,
            history_id=state.history_id,
            weights_digest=trained,
            weights=None,
            timing=StageTiming(stage="train_step", step=step),
        )

    def _restored(self, saved: Checkpoint | None) -> ActorState:
        """Restore a checkpoint, or the first state of the run. The state before is discarded."""
        self._discard()
        self._publisher.finish()  # what is being written or deleted is no leftover
        self._remove_leftovers()
        if saved is None:
            recovery.check_begins_here(self._store, 0)
            stepper = self._make_stepper(None)
            stepper.begin()
            first = journal.first_state_id(self._fingerprint)
            return ActorState(stepper=stepper, step=0, state_id=first, history_id=first)
        folder = checkpoints.load(self._store, saved, fingerprint=self._fingerprint)
        recorded = checkpoints.read_state(self._store, saved.path)
        stepper = self._make_stepper(recorded.autocast)
        stepper.begin(folder, renewed_at=recorded.step if recorded.forked else None)
        checkpoints.check_restored(folder, recorded, stepper.digests())
        return ActorState(
            stepper=stepper,
            step=recorded.step,
            state_id=recorded.state_id,
            history_id=recorded.history_id,
        )

    def _remove_leftovers(self) -> None:
        """Delete what a killed actor has half written: folders, some as large as a model, and the
        order of an epoch."""
        folder, _, name = REFERENCE.partition("/")
        self._store.remove_leftovers(folder, of=name)
        self._store.remove_leftovers(ORDERS)
        self._store.remove_leftovers(weights.FOLDER)
        self._store.in_memory.remove_leftovers(weights.FOLDER)
        self._store.remove_leftovers(checkpoints.FOLDER)
        self._store.remove_leftovers("", of="final")

    def _discard(self) -> None:
        if self.state is not None:
            self.state = None
            gc.collect()  # a trainer is full of reference cycles, and holds the device's memory
