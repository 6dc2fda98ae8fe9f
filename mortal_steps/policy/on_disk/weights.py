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

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from mortal_steps.data.problem_files import find_train_problems
from mortal_steps.errors import CorruptFileError, WeightsMismatchError
from mortal_steps.rollout.prompts import tokenize_prompts
from mortal_steps.rollout.weight_sync.canary import PROBE_FILE, published_in
from mortal_steps.store import RunStore
from mortal_steps.store.files import digest_file, link_verified
from mortal_steps.store.shared_memory import make_folder
from mortal_steps.store.syncing import BackgroundSync
from mortal_steps.types import PolicyVersion, WeightsRef

logger = logging.getLogger(__name__)

FOLDER = "weights"
WEIGHTS = "*.safetensors"
SHORTEST_PROBE, LONGEST_PROBE = 8, 64


class Policy(Protocol):
    """What `publish` needs of a policy; a `Stepper` has it."""

    def export_weights(self, folder: Path) -> None: ...

    def published_digests(self) -> dict[str, str]: ...

    def score(self, token_ids: Sequence[int]) -> list[float]: ...


def publish(
    store: RunStore,
    policy: Policy,
    version: PolicyVersion,
    probe: Sequence[int],
    sync: BackgroundSync | None = None,
    *,
    in_memory: bool = False,
) -> WeightsRef:
    """Commit the policy's weights as `version`, `in_memory` or on disk. If it is already published
    with these weights, that version is the answer.

    With `sync`, the files reach the disk later: wait for it before committing anything that depends
    on the version, such as a checkpoint. Raises `WeightsMismatchError` if the version exists with
    other weights: completions may have been sampled with it, so it is never replaced.
    """
    published = find(store, version)
    if published is not None:
        check_same(store, policy, published)
        return published
    if in_memory:
        make_folder(store.root)
        store = store.in_memory
    with store.committing_folder(path_of(version), sync=sync) as folder:
        policy.export_weights(folder)
        content = probe_of(probe, policy.score(probe), policy.published_digests())
        (folder / PROBE_FILE).write_bytes(content)
    return _reference(store, version)


def probe_of(
    token_ids: Sequence[int], logprobs: Sequence[float], digests: Mapping[str, str]
) -> bytes:
    """Content of the probe's file: what tells these weights from all others."""
    content = {"token_ids": list(token_ids), "logprobs": logprobs, "tensors": digests}
    return json.dumps(content).encode()


def find(store: RunStore, version: PolicyVersion) -> WeightsRef | None:
    """The version if it is published whole, in memory or on disk. A damaged one in memory goes, so
    that readers do not choose it."""
    found = find_in(store.in_memory, version)
    if found is None:
        store.in_memory.remove_folder(path_of(version))
    return found or find_in(store, version)


def find_in(store: RunStore, version: PolicyVersion) -> WeightsRef | None:
    """The version if this store has it whole; a damaged one is logged and counts as missing."""
    if not store.path(path_of(version)).exists():
        return None
    try:
        reference = _reference(store, version)
        store.verify_folder(reference.path, reference.sha256)
    except CorruptFileError as error:
        logger.warning("published version %d cannot be used: %s", version, error)
        return None
    return reference


def published_versions(store: RunStore) -> list[PolicyVersion]:
    """Versions in this store, oldest first, whole or not."""
    names = [path.name for path in store.path(FOLDER).glob("v*")]
    return sorted(PolicyVersion(int(name[1:])) for name in names if name[1:].isdigit())


def copy_to_disk(store: RunStore, version: PolicyVersion) -> None:
    """Copy a version to disk that is in memory alone. Raises `CorruptFileError` for one that is
    damaged there, and `StoreError`."""
    path, memory = path_of(version), store.in_memory
    if store.path(path).exists() or not memory.path(path).exists():
        return
    listed = memory.folder_files(path)
    with store.committing_folder(path, hashed=listed) as folder:
        for name, digest in listed.items():
            link_verified(memory.path(path) / name, folder / name, digest)


def prune(store: RunStore, keep: Collection[int], sync: BackgroundSync | None = None) -> None:
    """Delete every version that is not in `keep`; with `sync`, their files beside other work."""
    for each in (store.in_memory, store):
        for version in published_versions(each):
            if version not in keep:
                each.remove_folder(path_of(version), sync=sync)


def withdraw(store: RunStore, version: PolicyVersion) -> None:
    """Delete a version that no worker samples with."""
    for each in (store.in_memory, store):
        each.remove_folder(path_of(version))


def weights_digest(folder: Path) -> str:
    """sha256 of a model's safetensors; of their digests in name order where there are several."""
    return digest_of([digest_file(path) for path in sorted(folder.glob(WEIGHTS))])


def digest_of(digests: Sequence[str]) -> str:
    """The same digest, from the digests of these files in name order."""
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def probe_tokens(
    store: RunStore, tokenizer: Any, template_options: Mapping[str, Any], max_model_len: int
) -> list[int]:
    """The run's probe: the first training prompt as 8 to 64 tokens, repeated where it is shorter.

    Raises `StoreError` if the run has no problems.
    """
    first = find_train_problems(store)[0]
    ids = tokenize_prompts([first], tokenizer, template_options)[0]
    repeated = ids * -(-SHORTEST_PROBE // len(ids))
    # One position stays free: an engine scores a prompt only together with a token after it.
    return repeated[: min(LONGEST_PROBE, max_model_len - 1)]


def path_of(version: int) -> str:
    """Folder of a version, relative to the run directory."""
    return f"{FOLDER}/v{version}"


def _reference(store: RunStore, version: PolicyVersion) -> WeightsRef:
    path = path_of(version)
    return WeightsRef(version=version, path=path, sha256=store.folder_digest(path))


def check_same(store: RunStore, policy: Policy, published: WeightsRef) -> None:
    """Raise `WeightsMismatchError` unless the policy holds the weights of a published version."""
    path = store.holding(published.path).path(published.path)
    there = published_in(path).digests
    here = policy.published_digests()
    other = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    if other:
        raise WeightsMismatchError(
            f"version {published.version} is published with weights other than the actor's "
            f"({other[0]}, {len(other)} of {len(here)} tensors); delete {path} if the actor's are "
            "to take its place"
        )
