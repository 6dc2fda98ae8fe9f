"""A local model folder on its way to the Volume: once for all runs that begin with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from mortal_steps.compute.modal.host import Settings
from mortal_steps.compute.modal.volume import RunsVolume
from mortal_steps.types.identity import ModelFile

FOLDER = ".uploaded"


def folder_there(model_files: Mapping[str, ModelFile]) -> str | None:
    """Where on the Volume the folder belongs that held these files; None for a hub name, or a
    model that the run builds."""
    if not model_files:
        return None
    digests = {name: file.sha256 for name, file in model_files.items()}
    content = json.dumps(digests, sort_keys=True).encode()
    return f"{FOLDER}/{hashlib.sha256(content).hexdigest()}"


async def share_model(volume: RunsVolume, settings: Settings) -> None:
    """Upload the run's model folder, where there is one and nobody has done so before."""
    where, folder = settings.model_folder, Path(settings.config.model.name_or_path)
    if where is None or not folder.is_dir() or await volume.files(where):
        return
    files = [path for path in folder.rglob("*") if path.is_file()]
    await volume.upload({f"{where}/{path.relative_to(folder)}": path for path in files})
