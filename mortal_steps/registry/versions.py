"""The versions of a named model: whole folders, linked from the runs that they are from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.errors import NewerFormatError, StoreError
from mortal_steps.store import RunStore
from mortal_steps.store.files import link_verified
from mortal_steps.types.references import Below

FOLDER = "versions"


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class ModelVersion:
    """A trained model that can be put to use."""

    id: Below
    """Name of its folder: the run's id and the beginning of the weights' digest."""
    run_id: str
    run_uid: str
    """Distinguishes two runs with the same id."""
    runs: tuple[str, ...]
    """Ids of the run and, if that is a fork, of those that it goes on from."""
    sha256: str
    """Digest of the folder's manifest."""
    weights_sha256: str
    """sha256 of its safetensors, as in `FinalModel`."""

    @property
    def path(self) -> str:
        """Its folder, relative to that of the name."""
        return f"{FOLDER}/{self.id}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFiles:
    """The files of a model in a run directory that is about to become a version."""

    run_id: str
    run_uid: str
    runs: tuple[str, ...]
    weights_sha256: str
    files: Mapping[str, tuple[Path, str]]
    """Where each file is, and its digest as listed there, by its name."""

    @property
    def version_id(self) -> str:
        """See `ModelVersion.id`."""
        return f"{self.run_id}-{self.weights_sha256[:8]}"


def add_version(store: RunStore, model: ModelFiles) -> ModelVersion:
    """Link the files into a folder of their own. If the version is already there whole, it is the
    answer.

    Raises `CorruptFileError` for a file that does not match its digest, and `StoreError`.
    """
    path = f"{FOLDER}/{model.version_id}"
    record = f"{path}.json"
    known = _find_whole(store, model.version_id)
    if known is not None:
        return known
    digests = {name: digest for name, (_, digest) in model.files.items()}
    with store.committing_folder(path, hashed=digests) as folder:
        for name, (source, digest) in model.files.items():
            link_verified(source, folder / name, digest)
    version = ModelVersion(
        id=model.version_id,
        run_id=model.run_id,
        run_uid=model.run_uid,
        runs=model.runs,
        sha256=store.folder_digest(path),
        weights_sha256=model.weights_sha256,
    )
    store.write_record(record, version, ModelVersion)
    return version


def find_version(store: RunStore, version_id: str) -> ModelVersion:
    """A version that was brought in.

    Raises `StoreError` if there is none, and `CorruptFileError` if its record or a file is damaged.
    """
    found = store.find_record(f"{FOLDER}/{version_id}.json", ModelVersion)
    if found is None:
        raise StoreError(f"{store.root / FOLDER} has no version {version_id}")
    store.verify_folder(found[1].path, found[1].sha256)
    return found[1]


def _find_whole(store: RunStore, version_id: str) -> ModelVersion | None:
    """The version, or None if it is missing, damaged, or half-written by a process that was killed:
    it is then linked again."""
    try:
        return find_version(store, version_id)
    except NewerFormatError:
        raise
    except StoreError:
        return None
