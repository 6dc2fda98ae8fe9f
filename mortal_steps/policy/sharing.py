"""The actor's side of `direct`: a version is copied into shared memory and announced; a thread
writes its folder meanwhile.

    publish(v4): wait for v3's folder -> copy the tensors -> hash -> score the probe -> announce
                                                                      thread: write weights/v4

A model on a GPU is hashed while it scores. On a CPU, one thread that hashes beside those of the
forward pass makes them wait for each other, and takes longer than the hash does alone.

The folder's digest is known before the folder is there: it is of a manifest, and that is made from
the bytes in memory, which are those of the file that transformers would write. Until the folder is
whole, a step has a committed result and no version on disk; the state that the version holds can be
reached by replay for as long, since a checkpoint waits for the folder, and the step after that too.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from mortal_steps.errors import ConfigError
from mortal_steps.policy.on_disk import weights
from mortal_steps.rollout.weight_sync.canary import PROBE_FILE
from mortal_steps.store import RunStore
from mortal_steps.store.digests import digest_of_bytes
from mortal_steps.store.folders import FOLDER_MANIFEST, files_below, manifest_of
from mortal_steps.store.segments import Segment, remove_segments
from mortal_steps.store.tensor_layout import lay_out
from mortal_steps.system.background import BackgroundClock
from mortal_steps.system.threads import yield_to_others
from mortal_steps.types import PolicyVersion, SegmentRef, WeightsRef

SAFE_WEIGHTS_NAME = "model.safetensors"
"""As in transformers."""

logger = logging.getLogger(__name__)


@runtime_checkable
class Shareable(Protocol):
    """A policy whose tensors can be had one by one; a `TrlStepper` is one."""

    def policy_tensors(self) -> Mapping[str, Any]:
        """The tensors of `export_weights`, by the names that they have in its file."""
        ...

    def export_settings(self, folder: Path) -> None:
        """Write the other files of `export_weights`."""
        ...

    def score(self, token_ids: Sequence[int]) -> list[float]:
        """See `Stepper.score`."""
        ...


class Sharing:
    """The versions of one run that are in memory, and the folder that is being written."""

    def __init__(self, store: RunStore, clock: BackgroundClock) -> None:
        self._store = store
        self._clock = clock
        self._segments: dict[int, Segment] = {}
        self._announced: dict[int, WeightsRef] = {}
        self._settings: dict[str, bytes] = {}
        """The small files of a version, but for its probe."""
        self._thread = ThreadPoolExecutor(
            1, thread_name_prefix="write-weights", initializer=yield_to_others
        )
        self._writing: tuple[PolicyVersion, Future[None]] | None = None

    def find(self, version: int) -> WeightsRef | None:
        """The version, if this process has announced it and still has it in memory."""
        return self._announced.get(version)

    def publish(
        self, policy: Any, version: PolicyVersion, probe: Sequence[int], *, keep: Collection[int]
    ) -> WeightsRef:
        """Announce the policy's weights as `version`, and begin to write its folder.

        Of the versions in memory those to `keep` stay there. Raises `ConfigError` for a policy or
        a machine that cannot share memory, and what `join` raises.
        """
        if not isinstance(policy, Shareable):
            raise ConfigError(
                f"rollout.weight_sync = 'direct': {type(policy).__name__} has no policy_tensors "
                "and export_settings; give it these, or choose another rollout.weight_sync"
            )
        self.join()
        # Imported where used: an actor that is only made needs no torch.
        from mortal_steps.policy.model_files.staging import copy_into
        from mortal_steps.rollout.weight_sync.shared_tensors import views
        from mortal_steps.rollout.weight_sync.tensor_digests import tensor_digests

        tensors = policy.policy_tensors()
        layout = lay_out(
            (name, _type_name(name, tensor), tuple(tensor.shape))
            for name, tensor in tensors.items()
        )
        segment = self._segment_for(layout.size, keep)
        try:
            payload = segment.payload(layout.size)
            payload[: len(layout.header)] = layout.header
            for name, view in views(payload, layout).items():
                copy_into(view, tensors[name])
            on_cpu = all(tensor.device.type == "cpu" for tensor in tensors.values())
            by_name = tensor_digests(tensors.items())
            files, digests = self._described(policy, payload, probe, by_name, alone=on_cpu)
            manifest = manifest_of(digests)
            shared = {**files, FOLDER_MANIFEST: manifest}
            place = segment.seal(shared, (SAFE_WEIGHTS_NAME, layout.size))
        except BaseException:
            segment.remove()
            raise
        self._segments[version] = segment
        self._announced[version] = _reference(version, manifest, place)
        content: dict[str, bytes | memoryview] = {**files, SAFE_WEIGHTS_NAME: payload}
        path = weights.path_of(version)
        written = self._thread.submit(self._write, path, content, digests)
        self._writing = (version, written)
        return self._announced[version]

    @property
    def being_written(self) -> list[PolicyVersion]:
        """The version whose folder is not waited for yet, if there is one."""
        return [self._writing[0]] if self._writing else []

    def under_way(self) -> list[Future[None]]:
        """What ends once that folder is there."""
        return [self._writing[1]] if self._writing else []

    def join(self) -> None:
        """Wait until every version announced has its folder; raises the `StoreError` of writing."""
        if self._writing is None:
            return
        (version, written), self._writing = self._writing, None
        try:
            written.result()
        except BaseException:
            self._forget(version)
            raise

    def remove_others(self) -> None:
        """Remove the segments that earlier actors of the run have left; those of versions that are
        still sampled with have their folders by now."""
        names = [segment.name for segment in self._segments.values()]
        remove_segments(self._store.root, but=names)

    def _write(
        self, path: str, content: Mapping[str, bytes | memoryview], digests: Mapping[str, str]
    ) -> None:
        with self._clock.running("write"):
            self._store.commit_folder(path, content, digests)

    def _described(
        self,
        policy: Shareable,
        payload: memoryview,
        probe: Sequence[int],
        tensors: Mapping[str, str],
        *,
        alone: bool,
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        """The small files of a version, and the digests of all of them; the payload is hashed
        `alone`, or while the policy scores."""
        with ThreadPoolExecutor(1) as beside:
            digest = beside.submit(digest_of_bytes, payload, alone=alone)
            if alone:
                digest.result()
            if not self._settings:  # the same for all versions
                self._settings = _settings_of(policy)
            files = {
                **self._settings,
                PROBE_FILE: weights.probe_of(probe, policy.score(probe), tensors),
            }
            digests = {name: digest_of_bytes(content) for name, content in files.items()}
            return files, {**digests, SAFE_WEIGHTS_NAME: digest.result()}

    def _segment_for(self, size: int, keep: Collection[int]) -> Segment:
        """A segment to write to: one whose version nobody samples with any more, or a new one."""
        chosen: Segment | None = None
        for version in [version for version in self._segments if version not in keep]:
            segment = self._segments[version]
            fits = chosen is None and segment.capacity >= size and segment.try_to_lock()
            self._segments.pop(version)
            self._announced.pop(version)
            if fits:
                chosen = segment
            else:  # a worker that is late may be reading it
                segment.remove()
        if chosen is None:
            chosen = Segment(self._store.root, size)
            chosen.try_to_lock()  # nobody knows it yet
        return chosen

    def _forget(self, version: int) -> None:
        self._announced.pop(version)
        self._segments.pop(version).remove()


def _reference(version: PolicyVersion, manifest: bytes, place: SegmentRef) -> WeightsRef:
    return WeightsRef(
        version=version,
        path=weights.path_of(version),
        sha256=hashlib.sha256(manifest).hexdigest(),
        segment=place,
    )


def _settings_of(policy: Shareable) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        policy.export_settings(Path(folder))
        return {name: (Path(folder) / name).read_bytes() for name in files_below(Path(folder))}


def _type_name(name: str, tensor: Any) -> str:
    from mortal_steps.rollout.weight_sync.shared_tensors import NAMES

    if tensor.dtype not in NAMES:
        raise ConfigError(
            f"rollout.weight_sync = 'direct': {name} is of type {tensor.dtype}, which is not "
            "shared in memory; choose another rollout.weight_sync, such as 'reload'"
        )
    return str(NAMES[tensor.dtype])
