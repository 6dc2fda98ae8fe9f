"""Publishes the weights of a run, and decides how long each version is kept."""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from mortal_steps.config import ModelConfig, RolloutConfig, TrainingConfig
from mortal_steps.data.problem_files import find_train_problems
from mortal_steps.errors import WeightsMismatchError
from mortal_steps.policy.algorithms.base import Stepper
from mortal_steps.policy.on_disk import checkpoints, recovery, weights
from mortal_steps.rollout.prompts import tokenize_prompts
from mortal_steps.rollout.weight_sync.canary import PROBE_FILE, published_in
from mortal_steps.schedule import sampling_version
from mortal_steps.store import RunStore
from mortal_steps.store.files import link_verified, writing
from mortal_steps.store.shared_memory import make_folder
from mortal_steps.store.syncing import BackgroundSync
from mortal_steps.system.threads import BackgroundClock
from mortal_steps.types import PolicyVersion, WeightsRef

SHORTEST_PROBE, LONGEST_PROBE = 8, 64


class Publisher:
    """Publishes a run's policy versions, in shared memory where workers load them there. `finish`
    has to come before anything is committed that depends on one."""

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
        self._probe: list[int] = []
        self._sync = BackgroundSync(clock)
        self._pinned: set[PolicyVersion] = set()

    def publish(self, stepper: Stepper, step: int, *, replace: bool = False) -> WeightsRef:
        """Publish the weights after `step` train steps, which `stepper` has now. If this version
        exists with these weights, it is the answer.

        Raises `WeightsMismatchError` if it exists with other weights: completions may have been
        sampled with it. With `replace`, for a version that no worker has heard of, it is deleted
        then. Raises `StoreError`, too.
        """
        version = PolicyVersion(step)
        path, target = weights.path_of(version), self._store
        published = weights.find(self._store, version)
        if published is not None:
            try:
                self._check_same(stepper, published)
                return published
            except WeightsMismatchError:
                if not replace:
                    raise
            # Left of an attempt on other hardware: its result was never committed.
            for each in self._stores:
                each.remove_folder(path)
        if self._rollout.shares_weights:
            make_folder(self._store.root)
            target = self._store.in_memory
        probe = self._probe_for(stepper)
        # Version 0 of a model as it is has the bytes of the model's file, and is no link to it:
        # a user may overwrite that in place, and a link would change while workers read it.
        with target.committing_folder(path, sync=self._sync) as folder:
            stepper.export_weights(folder)
            content = probe_of(probe, stepper.score(probe), stepper.published_digests())
            (folder / PROBE_FILE).write_bytes(content)
        return weights.reference(target, version)

    def has_versions_before(self, step: int) -> bool:
        """Whether the older versions are published that a checkpoint of `step` refers to."""
        before = recovery.versions_before(self._rollout, step)
        return all(weights.find(self._store, version) for version in before)

    def finish(self) -> None:
        """Wait until all is on disk that a checkpoint may refer to. Raises `StoreError`."""
        with writing(self._store.path(weights.FOLDER)):
            self._sync.finish()

    def pin(self, version: PolicyVersion) -> list[Future[None]]:
        """Keep, while it is written, the versions that a checkpoint of this state refers to;
        returns futures that end once all is on disk."""
        self._pinned.add(version)
        return self._sync.under_way()

    def unpin(self, version: PolicyVersion) -> None:
        """Release the pinned versions: the checkpoint is written, or will not be."""
        self._pinned.discard(version)

    def copy_to_disk(self, step: int) -> None:
        """Copy the versions to disk that a checkpoint of `step` refers to, and does not lead to:
        memory does not outlast a reboot. Raises `CorruptFileError` for a version that is damaged in
        memory, and `StoreError`."""
        memory = self._store.in_memory
        for version in recovery.versions_before(self._rollout, step):
            path = weights.path_of(version)
            if self._store.path(path).exists() or not memory.path(path).exists():
                continue
            listed = memory.folder_files(path)
            with self._store.committing_folder(path, hashed=listed) as folder:
                for name, digest in listed.items():
                    link_verified(memory.path(path) / name, folder / name, digest)

    def prune(self, step: int) -> None:
        """Delete, beside other work, versions that nobody needs once `step` is taken."""
        # A flow that lost the answer to this step still asks for its version; no earlier one.
        oldest = sampling_version(self._rollout, step)
        versions = sorted({v for store in self._stores for v in weights.published_versions(store)})
        self._keep({v for v in versions if v >= oldest} | set(versions[-2:]))

    def prune_completed(self) -> None:
        """Delete all versions that a checkpoint leads to: the run samples no more."""
        self._keep(set())

    def _keep(self, versions: set[PolicyVersion]) -> None:
        """Delete all other versions but those before a checkpoint that sample from it on: it does
        not lead to them."""
        keep = set(versions)
        for saved in {*checkpoints.saved_steps(self._store), *self._pinned}:
            keep.update(recovery.versions_before(self._rollout, saved))
        for store in self._stores:
            for version in weights.published_versions(store):
                if version not in keep:
                    store.remove_folder(weights.path_of(version), sync=self._sync)

    @property
    def _stores(self) -> tuple[RunStore, RunStore]:
        return self._store.in_memory, self._store

    def _probe_for(self, stepper: Stepper) -> list[int]:
        if not self._probe:
            options, context = self._training.template_options, self._model.max_model_len
            self._probe = probe_tokens(self._store, stepper.tokenizer, options, context)
        return self._probe

    def _check_same(self, stepper: Stepper, published: WeightsRef) -> None:
        """Raise `WeightsMismatchError` unless the weights are those of a published version."""
        path = self._store.holding(published.path).path(published.path)
        there, here = published_in(path).digests, stepper.published_digests()
        names = sorted(here.keys() | there.keys())
        other = [name for name in names if here.get(name) != there.get(name)]
        if other:
            raise WeightsMismatchError(
                f"version {published.version} is published with weights other than the actor's "
                f"({other[0]}, {len(other)} of {len(here)} tensors); delete {path} if the actor's "
                "are to replace it"
            )


def probe_tokens(
    store: RunStore, tokenizer: Any, template_options: Mapping[str, Any], max_model_len: int
) -> list[int]:
    """Return the run's probe: the first training prompt as 8 to 64 tokens, repeated if shorter.
    Raises `StoreError` without problems."""
    first = find_train_problems(store)[0]
    ids = tokenize_prompts([first], tokenizer, template_options)[0]
    repeated = ids * -(-SHORTEST_PROBE // len(ids))
    # One position stays free: an engine scores a prompt only together with a token after it.
    return repeated[: min(LONGEST_PROBE, max_model_len - 1)]


def probe_of(
    token_ids: Sequence[int], logprobs: Sequence[float], digests: Mapping[str, str]
) -> bytes:
    """Return the content of the probe's file: what tells these weights from all others."""
    content = {"token_ids": list(token_ids), "logprobs": logprobs, "tensors": digests}
    return json.dumps(content).encode()
