"""Decides which versions of the weights a run publishes and how long they are kept."""

from __future__ import annotations

from concurrent.futures import Future

from mortal_steps.config import RunConfig
from mortal_steps.errors import WeightsMismatchError
from mortal_steps.policy.algorithms import Stepper
from mortal_steps.policy.algorithms.base import TellsOfModel
from mortal_steps.policy.on_disk import checkpoints, recovery, weights
from mortal_steps.policy.sharing import Sharing
from mortal_steps.schedule import sampling_version
from mortal_steps.store import RunStore
from mortal_steps.store.files import writing
from mortal_steps.store.syncing import BackgroundSync
from mortal_steps.system.background import BackgroundClock
from mortal_steps.types import PolicyVersion, WeightsRef


class Publisher:
    """Publishes the policy versions of one run."""

    def __init__(self, store: RunStore, config: RunConfig, clock: BackgroundClock) -> None:
        self._store = store
        self._config = config
        self._probe: list[int] | None = None
        self._sync = BackgroundSync(clock)
        self._pinned: set[PolicyVersion] = set()
        self._sharing = Sharing(store, clock) if config.shares_weights else None

    def find(self, version: PolicyVersion) -> WeightsRef | None:
        """The version if it is published: whole on disk, or in memory and being written to disk."""
        shared = self._sharing.find(version) if self._sharing else None
        return shared or weights.find(self._store, version)

    def publish(self, stepper: Stepper, step: int) -> WeightsRef:
        """Publish the weights after `step` train steps, which `stepper` holds.

        Raises `WeightsMismatchError` if that version exists with other weights, and what `join`
        raises.
        """
        version, probe = PolicyVersion(step), self._probe_for(stepper)
        if self._sharing is None:
            return weights.publish(self._store, stepper, version, probe, self._sync)
        there = self._sharing.find(version)
        if there is None and (there := weights.find(self._store, version)) is not None:
            weights.check_same(self._store, stepper, there)
        keep = recovery.sampling_versions(self._config, step)
        return there or self._sharing.publish(stepper, version, probe, keep=keep)

    def warnings(self, stepper: Stepper) -> tuple[str, ...]:
        """What TRL's trainers have to say of the model; those of others say nothing."""
        if not isinstance(stepper, TellsOfModel):
            return ()
        return stepper.warnings(self._probe_for(stepper))

    def _probe_for(self, stepper: Stepper) -> list[int]:
        if self._probe is None:
            self._probe = weights.probe_tokens(self._store, self._config, stepper.tokenizer)
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

    def publish_lost(self, stepper: Stepper, version: int, *, wanted_at: int) -> None:
        """Publish a version again if the actor that announced it was killed before its folder was
        whole, and the steps from `wanted_at` on are sampled with it."""
        if self._sharing is None or version < sampling_version(self._config.rollout, wanted_at):
            return
        if not self._store.path(weights.path_of(version)).exists():
            self.publish(stepper, version)

    def finish(self) -> None:
        """Wait until everything published is on disk; raises `StoreError`.

        This has to be done before a checkpoint is committed: a checkpoint may refer to a version,
        and older checkpoints may be deleted after it.
        """
        self.join()
        with writing(self._store.path(weights.FOLDER)):
            self._sync.finish()

    def join(self) -> None:
        """Wait until every announced version has its folder; raises `StoreError` if a folder cannot
        be written."""
        if self._sharing is not None:
            self._sharing.join()

    def settle(self) -> None:
        """Wait as `join` does, then remove what earlier actors of the run have left in memory."""
        if self._sharing is not None:
            self._sharing.join()
            self._sharing.remove_others()

    def pin(self, version: PolicyVersion) -> list[Future[None]]:
        """Keep this version, and those that a checkpoint of its state refers to, while that
        checkpoint is written.

        Returns futures that end once everything published is on disk.
        """
        self._pinned.add(version)
        writing = self._sharing.under_way() if self._sharing else []
        return [*writing, *self._sync.under_way()]

    def unpin(self, version: PolicyVersion) -> None:
        """Release the pinned versions: the checkpoint is written, or will not be."""
        self._pinned.discard(version)

    def prune(self, step: int) -> None:
        """Delete the versions that nobody needs any more once `step` is taken."""
        # A flow that lost the answer to this step still asks for its version; no earlier one.
        oldest = sampling_version(self._config.rollout, step)
        written = weights.published_versions(self._store)
        on_their_way = self._sharing.being_written if self._sharing else []
        versions = sorted({*written, *on_their_way})
        keep = {v for v in versions if v >= oldest} | set(versions[-2:])
        # Nor does a checkpoint lead to the older versions that sample from it on.
        keep |= self._pinned
        for saved in {*checkpoints.saved_steps(self._store), *self._pinned}:
            keep.update(recovery.versions_before(self._config, saved))
        weights.prune(self._store, keep, self._sync)
        if self._sharing is not None:
            self._sharing.remove_others()
