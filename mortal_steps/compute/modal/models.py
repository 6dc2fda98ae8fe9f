"""Local model folders on their way to the Volume: each once for all runs that begin with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from mortal_steps.compute.modal.volume import RunsVolume

FOLDER = ".uploaded"


def folder_there(files: Mapping[str, str]) -> str | None:
    """Where on the Volume the folder belongs that held these files, sha256 by name; None where
    there are none: for a hub name, or a model that the run builds."""
    if not files:
        return None
    content = json.dumps(dict(files), sort_keys=True).encode()
    return f"{FOLDER}/{hashlib.sha256(content).hexdigest()}"


async def share_folder(volume: RunsVolume, folder: Path, where: str) -> None:
    """Upload a model's folder, where it is on this machine and nobody has done so before."""
    if not folder.is_dir() or await volume.files(where):
        return
    files = [path for path in folder.rglob("*") if path.is_file()]
    await volume.upload({f"{where}/{path.relative_to(folder)}": path for path in files})


async def fetch_folder(volume: RunsVolume, folder: Path, where: str) -> None:
    """Bring a model's folder from the Volume, unless it is on this machine."""
    if folder.is_dir():
        return
    for path in await volume.files(where):
        await volume.download(path, folder / Path(path).relative_to(where))
