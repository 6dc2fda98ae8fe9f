"""The state that an actor holds in memory, and how it is described in records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mortal_steps.policy import journal
from mortal_steps.policy.algorithms import Stepper
from mortal_steps.policy.on_disk.checkpoints import CheckpointState
from mortal_steps.types import StageTiming, StepResult, TrainingBatch


@dataclass
class ActorState:
    """A trainer, and the step of the run at which it stands."""

    stepper: Stepper
    step: int
    """Train steps that the state includes."""
    state_id: str
    history_id: str

    def take(
        self, batch: TrainingBatch, batch_sha256: str, *, seed: int, fingerprint: str
    ) -> StepResult:
        """Train on one more batch. Returns the step's record, without the version published after
        it."""
        step, stepper = self.step, self.stepper
        metrics = stepper.train_step(batch, seed=seed)
        trained = stepper.weights_digest()
        self.step = step + 1
        self.history_id = journal.next_state_id(self.history_id, batch_sha256, fingerprint)
        self.state_id = journal.next_state_id(self.state_id, batch_sha256, fingerprint, trained)
        return StepResult(
            step=step,
            metrics=metrics,
            optimizer_steps=stepper.optimizer_steps,
            random_sha256=stepper.random_digest(),
            batch_sha256=batch_sha256,
            state_id=self.state_id,
            history_id=self.history_id,
            weights_digest=trained,
            weights=None,
            timing=StageTiming(stage="train_step", step=step),
        )

    def described(self, fingerprint: str, digests: Mapping[str, str]) -> CheckpointState:
        """The checkpoint state to record for it, with the digests of its parts."""
        return CheckpointState(
            step=self.step,
            state_id=self.state_id,
            history_id=self.history_id,
            digests=dict(digests),
            autocast=self.stepper.autocast,
            optimizer_steps=self.stepper.optimizer_steps,
            fingerprint=fingerprint,
        )
