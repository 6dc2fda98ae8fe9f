"""A LoRA adapter's folder, as PEFT writes it and every engine reads it.

adapter_config.json         rank, scaling, the modules that it adapts
adapter_model.safetensors   two small matrices for each of them
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from mortal_steps.errors import EngineError
from mortal_steps.store import FOLDER_MANIFEST

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter, which needs its base beside it, or a whole model."""
    return (folder / ADAPTER_CONFIG).exists()


def read_adapter_config(folder: Path) -> dict[str, Any]:
    """What the adapter is like; raises `EngineError` where that cannot be read."""
    path = folder / ADAPTER_CONFIG
    try:
        config: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise EngineError(f"{path} is no adapter's configuration: {error}") from error
    return config


def adapter_digest(folder: Path) -> str:
    """A name that no other adapter has: the digest of the manifest, which lists those of the files.

    Raises `EngineError` for a folder that nobody committed.
    """
    try:
        return hashlib.sha256((folder / FOLDER_MANIFEST).read_bytes()).hexdigest()
    except OSError as error:
        raise EngineError(f"{folder} is no committed folder: {error}") from error
