"""Names and shapes of the tensors in a folder, told without reading them."""

from __future__ import annotations

from pathlib import Path

from mortal_steps.errors import EngineError

TensorShapes = dict[str, tuple[int, ...]]


def tensor_shapes(folder: Path) -> TensorShapes:
    """Name and shape of every tensor in the folder's safetensors; raises `EngineError`."""
    from safetensors import SafetensorError, safe_open

    shapes: TensorShapes = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="numpy") as file:
                names = file.keys()
                shapes |= {name: tuple(file.get_slice(name).get_shape()) for name in names}
        except (OSError, SafetensorError) as error:
            raise EngineError(f"{path} is no readable safetensors file: {error}") from error
    if not shapes:
        raise EngineError(f"{folder} has no *.safetensors; save the model in that format")
    return shapes


def check_shapes(
    found: TensorShapes, wanted: TensorShapes, *, tied: bool, folder: Path | str
) -> None:
    """Raise `EngineError` unless both have the same tensors.

    With tied embeddings a folder may or may not repeat the embedding as `lm_head.weight`.
    """
    optional = {"lm_head.weight"} if tied else set()
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
