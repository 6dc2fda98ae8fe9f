"""A model in the cache of the Hugging Face hub, on this machine or on Modal's Volume."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.errors import StoreError


@dataclass(frozen=True, kw_only=True, slots=True)
class CachedModel:
    """What the cache has of a model."""

    where: str
    """Its folder, in words."""
    num_files: int
    remove: Callable[[], None]
    """Removes all of it, damaged or not; raises `StoreError`."""


def find_here(model: str) -> CachedModel | None:
    """What this machine's cache has of `org/name`; None: nothing."""
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = Path(HF_HUB_CACHE) / _folder_name(model)
    if not folder.is_dir():
        return None

    def remove() -> None:
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise StoreError(f"{folder} cannot be removed: {error.strerror}") from error

    files = sum(path.is_file() and not path.is_symlink() for path in folder.rglob("*"))
    return CachedModel(where=str(folder), num_files=files, remove=remove)


def find_on_modal(model: str) -> CachedModel | None:
    """The same of the Volume that all runs on Modal share."""
    from mortal_steps.compute.modal.release import HUB_VOLUME
    from mortal_steps.compute.modal.volume import RunsVolume

    volume, folder = RunsVolume(HUB_VOLUME), f"hub/{_folder_name(model)}"
    files = asyncio.run(volume.files(folder))
    if not files:
        return None
    return CachedModel(
        where=f"{HUB_VOLUME}:/{folder}",
        num_files=len(files),
        remove=lambda: asyncio.run(volume.remove(folder)),
    )


def _folder_name(model: str) -> str:
    from huggingface_hub.file_download import repo_folder_name

    return repo_folder_name(repo_id=model, repo_type="model")
