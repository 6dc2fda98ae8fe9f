"""The state that an actor has in memory, and what is recorded of it."""

from __future__ import annotations

from dataclasses import dataclass

from mortal_steps.policy import journal
from mortal_steps.policy.algorithms import Stepper
from mortal_steps.policy.checkpoints import CheckpointState
from mortal_steps.types import RolloutBatch, StageTiming, StepResult


@dataclass
class Held:
    """A trainer, and where in the run it stands."""

    stepper: Stepper
    step: int
    """Train steps it contains."""
    state_id: str
    history_id: str

    def take(
        self, batch: RolloutBatch, batch_sha256: str, *, seed: int, fingerprint: str
    ) -> StepResult:
        """Train on one more batch; the step's record, without the version published after it."""
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

    def described(self, fingerprint: str) -> CheckpointState:
        """What a checkpoint of it says of itself."""
        return CheckpointState(
            step=self.step,
            state_id=self.state_id,
            history_id=self.history_id,
            digests=self.stepper.digests(),
            autocast=self.stepper.autocast,
            optimizer_steps=self.stepper.optimizer_steps,
            fingerprint=fingerprint,
        )
