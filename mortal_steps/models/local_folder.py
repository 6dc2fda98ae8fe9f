"""The files of a local model folder, as they were when the run began.

`model.name_or_path` is no part of the run directory. Somebody who trains into that folder again, or
downloads it anew, would have a run that is resumed go on from another model.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mortal_steps.config import ModelConfig
from mortal_steps.errors import ModelError
from mortal_steps.extensions import nearest_path
from mortal_steps.store.digests import BLAKE3, digest_of_file
from mortal_steps.store.files import digest_file
from mortal_steps.store.folders import FOLDER_MANIFEST
from mortal_steps.types.identity import ModelFile

WEIGHTS = (".safetensors", ".bin")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
OF_A_RUN = ("final-merged", "final")
"""Folders of a run directory with its trained model; of an adapter, the first can be loaded."""
GGUF = b"GGUF"
"""How a file of llama.cpp begins."""
OTHERS = (".json", ".model", ".txt", ".jinja", ".py")
"""Files other than weights that decide what a model is: configuration, tokenizer, chat template and
code. A README may change."""


def describe_model(model: ModelConfig) -> dict[str, ModelFile]:
    """Return the files of a local `model.name_or_path` by name; else none."""
    if model.new is not None:
        return {}
    return {
        path.name: ModelFile(
            sha256=digest_file(path),
            num_bytes=path.stat().st_size,
            changed_ns=path.stat().st_ctime_ns,
        )
        for path in files_of(Path(model.name_or_path))
    }


def check_folder(folder: Path, *, called: str = "model.name_or_path", whole: bool = True) -> None:
    """Raise `ModelError`, naming the folder as `called`, unless it holds a model and, if `whole`,
    its tokenizer."""
    named = f"{called}: {folder}"
    if is_gguf(folder):
        raise ModelError(_import_first(called, folder))
    if folder.is_file():
        raise ModelError(f"{named} is a file; name the model's folder")
    if not folder.is_dir():
        raise ModelError(f"{called}: no such folder: {folder}{nearest_path(folder, Path.is_dir)}")
    if not (folder / "config.json").exists() and (folder / "adapter_config.json").exists():
        raise ModelError(
            f"{named} is a PEFT adapter, which a run cannot begin with: add it to its base with "
            "AutoPeftModelForCausalLM.from_pretrained(...).merge_and_unload(), save that with its "
            "tokenizer, and name the new folder"
        )
    # Of several the largest, which has lost the least.
    gguf = max(folder.glob("*.gguf"), key=lambda file: file.stat().st_size, default=None)
    if gguf is not None and not weight_files(folder):
        raise ModelError(_import_first(called, gguf))
    if not (folder / "config.json").exists():
        trained = [each for name in OF_A_RUN if (each := folder / name).is_dir()]
        meant = f"; name {trained[0]}, the model of that run" if trained else ""
        raise ModelError(f"{named} has no config.json: it is no model folder{meant}")
    if whole and not any((folder / name).exists() for name in TOKENIZERS):
        raise ModelError(
            f"{named} has no tokenizer (none of {', '.join(TOKENIZERS)}); save one there with "
            "tokenizer.save_pretrained"
        )
    if not weight_files(folder):
        raise ModelError(
            f"{named} has no weights (*{', *'.join(WEIGHTS)}); save the model there with "
            "model.save_pretrained"
        )


def is_gguf(path: Path) -> bool:
    """Whether this is a file of llama.cpp."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(GGUF)) == GGUF


def _import_first(called: str, gguf: Path) -> str:
    return (
        f"{called}: {gguf} is for llama.cpp (GGUF), and cannot be trained as it is; make a model "
        f"folder of it with `mortal import-gguf {gguf} FOLDER`, and name that folder"
    )


def check_listed_weights(folder: Path, *, called: str = "model.name_or_path") -> None:
    """Raise `ModelError` for weights that are not what MORTAL has written: in a folder that has its
    list of digests, such as `final/` of a run or a model in production."""
    manifest = folder / FOLDER_MANIFEST
    listed = (_read_settings(manifest) or {}).get("files")
    if not isinstance(listed, dict):
        return  # of somebody else's
    for path in weight_files(folder):
        digest = str(listed.get(path.name))
        # Another digest is of somebody else's list.
        if digest.startswith(BLAKE3) and digest_of_file(path) != digest:
            raise ModelError(
                f"{called}: {path} is damaged: it is not what {manifest.name} beside it lists; "
                "restore it, or `mortal rollback` to another model. If you have changed it "
                f"yourself, remove that {manifest.name}"
            )


def read_context(path: Path) -> int | None:
    """Length of a model's context in tokens, from its config.json; None if that does not say."""
    settings = _read_settings(path) or {}
    text = settings.get("text_config")
    found = (text if isinstance(text, dict) else settings).get("max_position_embeddings")
    return found if isinstance(found, int) and found > 0 else None


def takes_pictures(path: Path) -> bool:
    """Whether a model looks at pictures as well, by its config.json."""
    return "vision_config" in (_read_settings(path) or {})


def read_type(path: Path) -> str | None:
    """Type of the saved weights by config.json, such as `bfloat16`; None if untold."""
    settings = _read_settings(path) or {}
    text = settings.get("text_config")
    for section in (settings, text if isinstance(text, dict) else {}):
        for name in ("dtype", "torch_dtype"):
            if isinstance(section.get(name), str):
                return str(section[name])
    return None


def _read_settings(path: Path) -> dict[str, Any] | None:
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return settings if isinstance(settings, dict) else None


def check_model(
    model: ModelConfig, began_with: Mapping[str, ModelFile], *, called: str = "model.name_or_path"
) -> None:
    """Raise `ModelError`, naming the folder as `called`, if it differs from what it was when the
    run began."""
    if not began_with:
        return
    folder = Path(model.name_or_path)
    changes = list(_changes(folder, began_with))
    if changes:
        raise ModelError(
            f"{called}: {folder.absolute()} is not what the run began with "
            f"({', '.join(changes)}); restore it, or train again under another --run-id"
        )


def _changes(folder: Path, began_with: Mapping[str, ModelFile]) -> Iterator[str]:
    there = {path.name: path for path in files_of(folder)}
    for name in sorted(there.keys() | began_with.keys()):
        if name not in there:
            yield f"{name} is missing"
        elif name not in began_with:
            yield f"{name} is new"
        elif not _is_same(there[name], began_with[name]):
            yield f"{name} was changed"


def _is_same(path: Path, before: ModelFile) -> bool:
    found = path.stat()
    if found.st_size != before.num_bytes:
        return False
    return found.st_ctime_ns == before.changed_ns or digest_file(path) == before.sha256


def weight_files(folder: Path) -> list[Path]:
    """Return the files that hold weights; empty if there is no such folder."""
    return [path for path in files_of(folder) if path.suffix in WEIGHTS]


def files_of(folder: Path) -> list[Path]:
    """Return the files that decide what the model is; empty if there is no such folder."""
    if not folder.is_dir():
        return []
    return sorted(
        path for path in folder.iterdir() if path.suffix in WEIGHTS + OTHERS and path.is_file()
    )
