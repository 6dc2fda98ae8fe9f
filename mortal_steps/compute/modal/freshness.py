"""When a container can do without reloading the Volume before a call.

A reload shows what others have committed, and takes time. A train step needs nothing of it where

- its batch came with the order, or is here;
- no other container has worked for this actor since this one did, so that the actor's own records
  are all here;
- nobody has taken the run over (fence.py), which the Volume's own list of leases tells.

So does a shard whose weights are here. Any other call reloads.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from mortal_steps.compute.modal.cargo import ROOM, file_refs, has
from mortal_steps.compute.modal.fence import FOLDER
from mortal_steps.errors import CorruptFileError
from mortal_steps.store import RunStore
from mortal_steps.types import FileRef, GenerateRequest, WeightsRef

logger = logging.getLogger(__name__)

WITHOUT_RELOAD = {"generate", "train_step"}
"""Methods that look for nothing but what their request names, and their worker's own records."""


class Listing(Protocol):
    """Of a Modal Volume, what it has at this moment."""

    def listdir(self, path: str) -> Sequence[Any]:
        """What is committed in a folder, as entries with a `path`."""
        ...


def has_all(
    store: RunStore, method: str, payload: Mapping[str, Any], brought: Collection[FileRef]
) -> bool:
    """Whether all that the request names is here, or `brought` with it."""
    if method not in WITHOUT_RELOAD:
        return False
    request = payload["request"]
    if isinstance(request, GenerateRequest) and not _has_weights(store, request.weights):
        return False
    return all(_is_here(store, ref) for ref in file_refs(payload) if ref not in brought)


def is_driven_with(volume: Listing, run_id: str, lease: int) -> bool:
    """Whether the Volume knows of no later lease of the run; False where it cannot be asked."""
    try:
        names = [entry.path.rpartition("/")[2] for entry in volume.listdir(f"{run_id}/{FOLDER}")]
    except Exception as error:  # noqa: BLE001 - whatever Modal raises, a reload tells as well
        logger.warning("the leases of %s are not listed: %s", run_id, error)
        return False
    return all(int(name) <= lease for name in names if name.isdecimal())


def _has_weights(store: RunStore, weights: WeightsRef) -> bool:
    """Whether this very version is here: one of its number may be an attempt's that was lost, and
    is replaced by now."""
    try:
        return store.folder_digest(weights.path) == weights.sha256
    except CorruptFileError:
        return False


def _is_here(store: RunStore, ref: FileRef) -> bool:
    """A large record counts as not here: looking at all of it takes as long as a reload."""
    path = store.path(ref.path)
    return path.exists() and path.stat().st_size <= ROOM and has(store, ref)
