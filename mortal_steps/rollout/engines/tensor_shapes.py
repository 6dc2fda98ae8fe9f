"""Names and shapes of the tensors in a folder, told without reading them."""

from __future__ import annotations

import json
from pathlib import Path

from mortal_steps.errors import EngineError

TensorShapes = dict[str, tuple[int, ...]]


def model_files(folder: Path) -> list[Path]:
    """The safetensors that are read as the model: those of its index or, without one, the file of
    the usual name. Others may lie beside them, such as the same weights by other names
    (`consolidated.safetensors`) or an adapter."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        return [folder / name for name in sorted(set(names))]
    whole = folder / "model.safetensors"
    return [whole] if whole.exists() else sorted(folder.glob("*.safetensors"))


def tensor_shapes(folder: Path, *, required: bool = True) -> TensorShapes:
    """Name and shape of every tensor in the model's safetensors; raises `EngineError`, for a model
    in another format only where one is `required`."""
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
