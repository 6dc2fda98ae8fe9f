"""Published policy versions: `weights/v<n>/`, immutable, each with a probe to recognise it by.

    weights/v12/
      config.json generation_config.json model.safetensors    a `from_pretrained` folder; or
      adapter_config.json adapter_model.safetensors           a LoRA adapter without its base
      probe.json        {"token_ids": [5, 6, ...], "logprobs": [-1.2, ...], "tensors": {...}}
      manifest.json     digest of each file

The probe is a fixed token sequence with the actor's own logprobs under these weights (those of
`token_ids[1:]`). A rollout worker that loaded the folder scores it too, and so finds out whether it
samples with these weights or only believes so. `tensors` has the digest of each tensor, computed
where the actor had it: the worker computes those of what it holds.

With `rollout.weight_sync = "direct"` the folders lie in shared memory (`RunStore.in_memory`), and
here only copies of those that a checkpoint refers to.
"""

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path

from mortal_steps.errors import CorruptFileError
from mortal_steps.store import RunStore
from mortal_steps.store.files import digest_file
from mortal_steps.types import PolicyVersion, WeightsRef

logger = logging.getLogger(__name__)

FOLDER = "weights"
WEIGHTS = "*.safetensors"


def find(store: RunStore, version: PolicyVersion) -> WeightsRef | None:
    """Return the version if it is published whole, in memory or on disk. A damaged one in memory
    goes, so that readers do not choose it."""
    found = find_in(store.in_memory, version)
    if found is None:
        store.in_memory.remove_folder(path_of(version))
    return found or find_in(store, version)


def find_in(store: RunStore, version: PolicyVersion) -> WeightsRef | None:
    """Return the version if this store has it whole; a damaged one is logged."""
    if not store.path(path_of(version)).exists():
        return None
    try:
        found = reference(store, version)
        store.verify_folder(found.path, found.sha256)
    except CorruptFileError as error:
        logger.warning("published version %d cannot be used: %s", version, error)
        return None
    return found


def published_versions(store: RunStore) -> list[PolicyVersion]:
    """Versions in this store, oldest first, whole or not."""
    names = [path.name for path in store.path(FOLDER).glob("v*")]
    return sorted(PolicyVersion(int(name[1:])) for name in names if name[1:].isdigit())


def weights_digest(folder: Path) -> str:
    """sha256 of a model's safetensors; of their digests in name order where there are several."""
    return digest_of([digest_file(path) for path in sorted(folder.glob(WEIGHTS))])


def digest_of(digests: Sequence[str]) -> str:
    """Return the same digest, from the digests of these files in name order."""
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def path_of(version: int) -> str:
    return f"{FOLDER}/v{version}"


def reference(store: RunStore, version: PolicyVersion) -> WeightsRef:
    """Return the version's reference; raises `CorruptFileError` without its manifest."""
    path = path_of(version)
    return WeightsRef(version=version, path=path, sha256=store.folder_digest(path))
