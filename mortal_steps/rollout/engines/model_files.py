"""Folders of weights, as engines read them: a whole model, or a LoRA adapter as PEFT writes it.

adapter_config.json         rank, scaling, the modules that an adapter adapts
adapter_model.safetensors   two small matrices for each of them
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mortal_steps.errors import EngineError
from mortal_steps.store import FOLDER_MANIFEST

if TYPE_CHECKING:  # an engine sets the environment that torch reads when it is imported
    import torch

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
TensorShapes = dict[str, tuple[int, ...]]


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter, which needs its base beside it, or a whole model."""
    return (folder / ADAPTER_CONFIG).exists()


def read_adapter_config(folder: Path) -> dict[str, Any]:
    """Return what the adapter is like; raises `EngineError` where that cannot be read."""
    path = folder / ADAPTER_CONFIG
    try:
        config: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise EngineError(f"{path} is no adapter's configuration: {error}") from error
    return config


def adapter_digest(folder: Path) -> str:
    """Return a name that no other adapter has: its manifest's digest. Raises `EngineError` for a
    folder that nobody committed."""
    try:
        return hashlib.sha256((folder / FOLDER_MANIFEST).read_bytes()).hexdigest()
    except OSError as error:
        raise EngineError(f"{folder} is no committed folder: {error}") from error


def model_files(folder: Path) -> list[Path]:
    """Return the safetensors of the model: its index's, or the usual file. Others, such as
    `consolidated.safetensors` or an adapter, may lie beside them."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        return [folder / name for name in sorted(set(names))]
    whole = folder / "model.safetensors"
    return [whole] if whole.exists() else sorted(folder.glob("*.safetensors"))


def tensor_shapes(folder: Path, *, required: bool = True) -> TensorShapes:
    """Shapes of the model's tensors by name. Raises `EngineError` for unreadable safetensors, and
    for a model in another format if one is `required`."""
    from safetensors import SafetensorError, safe_open

    shapes: TensorShapes = {}
    for path in model_files(folder):
        try:
            with safe_open(path, framework="numpy") as file:
                names = file.keys()
                shapes |= {name: tuple(file.get_slice(name).get_shape()) for name in names}
        except (OSError, SafetensorError) as error:
            raise EngineError(f"{path} is no readable safetensors file: {error}") from error
    if required and not shapes:
        raise EngineError(f"{folder} has no *.safetensors; save the model in that format")
    return shapes


def names_by_file(folder: Path) -> dict[str, frozenset[str]]:
    """Tensor names in each safetensors file, but for damaged ones."""
    from safetensors import SafetensorError, safe_open

    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with (
            contextlib.suppress(OSError, SafetensorError),
            safe_open(path, framework="numpy") as file,
        ):
            found[path.name] = frozenset(file.keys())
    return found


def tensors_in(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and tensor out of a model folder's mapped files: never two sets of weights in memory."""
    from safetensors import safe_open

    for path in model_files(folder):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118
                yield name, file.get_tensor(name)


def check_shapes(
    found: TensorShapes,
    wanted: TensorShapes,
    *,
    tied: bool,
    folder: Path | str,
    by_name: bool = True,
) -> None:
    """Raise `EngineError` unless both have the same tensors.

    With tied embeddings a folder may or may not repeat the embedding as `lm_head.weight`. Without
    `by_name`, only tensors that both have are compared: a model that somebody else saved may call
    them otherwise than the actor does, or hold some that nothing reads.
    """
    optional = {"lm_head.weight"} if tied else set()
    if not by_name:
        optional |= found.keys() ^ wanted.keys()
    differing = sorted(
        name
        for name in (found.keys() | wanted.keys()) - optional
        if found.get(name) != wanted.get(name)
    )
    if differing:
        name = differing[0]
        raise EngineError(
            f"the weights in {folder} are not this model's: {name} is {found.get(name, 'missing')} "
            f"there and {wanted.get(name, 'missing')} in the model ({len(differing)} tensors "
            "differ)"
        )
