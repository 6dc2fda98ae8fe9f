"""Which versions of the weights a run publishes, and for how long they stay."""

from __future__ import annotations

from mortal_steps.config import RunConfig
from mortal_steps.errors import WeightsMismatchError
from mortal_steps.policy import checkpoints, recovery, weights
from mortal_steps.policy.algorithms import Stepper
from mortal_steps.schedule import sampling_version
from mortal_steps.store import RunStore
from mortal_steps.store.files import writing
from mortal_steps.store.syncing import BackgroundSync
from mortal_steps.types import PolicyVersion, WeightsRef


class Publisher:
    """Publishes the versions of one run."""

    def __init__(self, store: RunStore, config: RunConfig) -> None:
        self._store = store
        self._config = config
        self._probe: list[int] | None = None
        self._sync = BackgroundSync()

    def publish(self, stepper: Stepper, step: int) -> WeightsRef:
        """The weights after `step` train steps, which `stepper` holds.

        Raises `WeightsMismatchError` if that version is there already, with other weights.
        """
        if self._probe is None:
            self._probe = weights.probe_tokens(self._store, self._config, stepper.tokenizer)
        version = PolicyVersion(step)
        return weights.publish(self._store, stepper, version, self._probe, self._sync)

    def publish_unannounced(self, stepper: Stepper, step: int) -> WeightsRef:
        """The same for a version that nobody has been told of."""
        try:
            return self.publish(stepper, step)
        except WeightsMismatchError:
            # Left of an attempt on other hardware that nobody heard of: its result is not there.
            weights.withdraw(self._store, PolicyVersion(step))
            return self.publish(stepper, step)

    def finish(self) -> None:
        """Wait until what was published is on disk; raises `StoreError`. A checkpoint leads to no
        version before it, and may be followed by the deletion of those that do."""
        with writing(self._store.path(weights.FOLDER)):
            self._sync.finish()

    def prune(self, step: int) -> None:
        """Delete the versions that nobody asks for any more once `step` is taken."""
        # A flow that lost the answer to this step still asks for its version; no earlier one.
        oldest = sampling_version(self._config.rollout, step)
        versions = weights.published_versions(self._store)
        keep = {v for v in versions if v >= oldest} | set(versions[-2:])
        # Nor does a checkpoint lead to the older versions that sample from it on.
        for saved in checkpoints.saved_steps(self._store):
            keep.update(recovery.versions_before(self._config, saved))
        weights.prune(self._store, keep)
