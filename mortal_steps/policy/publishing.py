"""Decides which versions of the weights a run publishes and how long they are kept."""

from __future__ import annotations

from concurrent.futures import Future

from mortal_steps.config import ModelConfig, RolloutConfig, TrainingConfig
from mortal_steps.errors import WeightsMismatchError
from mortal_steps.policy.algorithms import Stepper
from mortal_steps.policy.on_disk import checkpoints, recovery, weights
from mortal_steps.schedule import sampling_version
from mortal_steps.store import RunStore
from mortal_steps.store.files import writing
from mortal_steps.store.syncing import BackgroundSync
from mortal_steps.system.threads import BackgroundClock
from mortal_steps.types import PolicyVersion, WeightsRef


class Publisher:
    """Publishes the policy versions of one run."""

    def __init__(
        self,
        store: RunStore,
        rollout: RolloutConfig,
        model: ModelConfig,
        training: TrainingConfig,
        clock: BackgroundClock,
    ) -> None:
        self._store = store
        self._rollout = rollout
        self._model = model
        self._training = training
        self._probe: list[int] | None = None
        self._sync = BackgroundSync(clock)
        self._pinned: set[PolicyVersion] = set()

    def find(self, version: PolicyVersion) -> WeightsRef | None:
        """The version if it is published whole."""
        return weights.find(self._store, version)

    def has_versions_before(self, step: int) -> bool:
        """Whether the older versions are published that a checkpoint of `step` refers to."""
        return all(self.find(each) for each in recovery.versions_before(self._rollout, step))

    def publish(self, stepper: Stepper, step: int) -> WeightsRef:
        """Publish the weights after `step` train steps, which `stepper` holds.

        Raises `WeightsMismatchError` if that version exists with other weights, and `StoreError`.
        """
        return weights.publish(
            self._store,
            stepper,
            PolicyVersion(step),
            self._probe_for(stepper),
            self._sync,
            in_memory=self._rollout.shares_weights,
        )

    def _probe_for(self, stepper: Stepper) -> list[int]:
        if self._probe is None:
            options, context = self._training.template_options, self._model.max_model_len
            self._probe = weights.probe_tokens(self._store, stepper.tokenizer, options, context)
        return self._probe

    def publish_unannounced(self, stepper: Stepper, step: int) -> WeightsRef:
        """Publish a version that no worker has been told of yet. Other weights under its name are
        replaced."""
        try:
            return self.publish(stepper, step)
        except WeightsMismatchError:
            # Left of an attempt on other hardware that nobody heard of: its result is not there.
            weights.withdraw(self._store, PolicyVersion(step))
            return self.publish(stepper, step)

    def finish(self) -> None:
        """Wait until everything published is on disk; raises `StoreError`.

        This has to be done before a checkpoint is committed: a checkpoint may refer to a version,
        and older checkpoints may be deleted after it.
        """
        with writing(self._store.path(weights.FOLDER)):
            self._sync.finish()

    def pin(self, version: PolicyVersion) -> list[Future[None]]:
        """Keep the versions that a checkpoint of this state refers to while it is written.

        Returns futures that end once everything published is on disk.
        """
        self._pinned.add(version)
        return self._sync.under_way()

    def copy_to_disk(self, step: int) -> None:
        """Copy the versions to disk that a checkpoint of `step` refers to, and does not lead to:
        memory does not outlast a reboot."""
        for version in recovery.versions_before(self._rollout, step):
            weights.copy_to_disk(self._store, version)

    def unpin(self, version: PolicyVersion) -> None:
        """Release the pinned versions: the checkpoint is written, or will not be."""
        self._pinned.discard(version)

    def prune(self, step: int) -> None:
        """Delete the versions that nobody needs any more once `step` is taken."""
        # A flow that lost the answer to this step still asks for its version; no earlier one.
        oldest = sampling_version(self._rollout, step)
        stores = (self._store.in_memory, self._store)
        versions = sorted({v for store in stores for v in weights.published_versions(store)})
        keep = {v for v in versions if v >= oldest} | set(versions[-2:])
        # Nor does a checkpoint lead to the older versions that sample from it on.
        for saved in {*checkpoints.saved_steps(self._store), *self._pinned}:
            keep.update(recovery.versions_before(self._rollout, saved))
        weights.prune(self._store, keep, self._sync)
