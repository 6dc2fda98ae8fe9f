"""`direct`: the tensors are copied out of memory that the actor shares, without a file between.

The actor announces where (`WeightsRef.segment`). What lies there is a version's whole folder: its
manifest has the digest that was published, the files have those of the manifest. What the engine
holds, once it has copied the tensors, must have the digests of those that the actor had; where it
cannot compare all of their digests, the file in memory is hashed.

A version that is not in memory (any more) is read from its folder: after a resume, or where the
actor was restarted, or for a worker that comes late.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from mortal_steps.errors import CorruptFileError, EngineError, WeightsMismatchError
from mortal_steps.rollout.engines.base import Engine
from mortal_steps.rollout.weight_sync.base import restarted_on_failure
from mortal_steps.rollout.weight_sync.canary import (
    PROBE_FILE,
    check_probe,
    is_compared,
    published_digests,
)
from mortal_steps.rollout.weight_sync.compared import Compared
from mortal_steps.rollout.weight_sync.published import PublishedTensors, check_held
from mortal_steps.store.digests import digest_of_bytes
from mortal_steps.store.folders import FOLDER_MANIFEST, listed_files
from mortal_steps.store.mapped_segments import MappedSegments
from mortal_steps.store.segments import SHARED_MEMORY, Shared, damaged_segment, opened
from mortal_steps.store.tensor_layout import read_layout
from mortal_steps.system.faults import ends_process
from mortal_steps.types import WeightsRef

logger = logging.getLogger(__name__)


class Direct:
    """For an actor and rollout workers on one machine."""

    releases_memory = False

    def load(self, engine: Engine, folder: Path) -> None:
        """See `WeightSync.load`: for a version that is not in memory."""
        with restarted_on_failure(engine, folder):
            engine.load(folder)

    def load_shared(
        self,
        engine: Engine,
        weights: WeightsRef,
        tolerance: float,
        mapped: MappedSegments | None = None,
        compared: Compared | None = None,
    ) -> int:
        """Make the engine sample with `weights`; their bytes, or 0 where their folder has to be
        read. `mapped` has what the worker keeps from version to version.

        Raises `CorruptFileError` for memory that does not hold what was published, `EngineError`
        for tensors that are not the model's, `WeightsMismatchError` if the canary fails.
        """
        if weights.segment is None:
            logger.info(
                "weights v%d are in no shared memory; reading their folder", weights.version
            )
            return 0
        with opened(weights.segment, mapped) as shared:
            if shared is None:
                logger.warning(
                    "weights v%d are in shared memory no longer (%s); reading their folder",
                    weights.version,
                    weights.segment.name,
                )
                return 0
            return _load(engine, weights, shared, tolerance, compared)


def _load(
    engine: Engine, weights: WeightsRef, shared: Shared, tolerance: float, compared: Compared | None
) -> int:
    # Imported where tensors are: a worker's engine has to be the first to import torch.
    from mortal_steps.rollout.weight_sync.shared_tensors import views

    assert weights.segment is not None
    origin = f"{SHARED_MEMORY / weights.segment.name} (weights v{weights.version})"
    digest = _checked(shared, weights, origin)
    try:
        layout = read_layout(shared.payload, origin)
    except CorruptFileError:
        raise _damaged(origin) from None
    tensors = views(shared.payload, layout)
    try:
        engine.load_tensors(tensors)
        probe = shared.files[PROBE_FILE]
        published = PublishedTensors(given=tensors, digests=published_digests(probe))
        found = engine.compare(published)
        check_held(found, origin)
        proven = is_compared(layout, found)
        check_probe(engine, probe, tolerance, origin, proven=proven)
    except EngineError:
        raise
    except WeightsMismatchError:
        if digest_of_bytes(shared.payload, alone=True) == digest:
            raise
        raise _damaged(origin) from None
    except Exception as error:
        if ends_process(error):
            raise
        logger.warning("the engine failed to load %s; reading its folder", origin, exc_info=True)
        return 0
    is_hashed = is_compared(layout, published.by_digest(found))
    if not is_hashed and digest_of_bytes(shared.payload, alone=True) != digest:
        raise _damaged(origin)
    if compared is not None:
        compared.tell(found, [layout])
    return sum(map(len, (shared.payload, *shared.files.values())))


def _damaged(origin: str) -> CorruptFileError:
    return damaged_segment(origin, "its tensors are not those that were published")


def _checked(shared: Shared, weights: WeightsRef, origin: str) -> str:
    """The digest of the payload as it was published, once the small files are as published."""
    manifest = shared.files.get(FOLDER_MANIFEST, b"")
    if hashlib.sha256(manifest).hexdigest() != weights.sha256:
        raise damaged_segment(origin, "its manifest is another one than was published")
    digests = listed_files(manifest, origin)
    payload = digests.pop(shared.payload_name, "")
    for name, digest in digests.items():
        if digest_of_bytes(shared.files.get(name, b"")) != digest:
            raise damaged_segment(origin, f"{name} is not what was published")
    return payload
