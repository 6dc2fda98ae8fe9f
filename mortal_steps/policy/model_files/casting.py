"""Give the weights in a folder another floating-point type."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers.utils import CONFIG_NAME, SAFE_WEIGHTS_INDEX_NAME

from mortal_steps.policy.model_files.rows import cast_form, write_rows


def cast_folder(folder: Path, dtype: str) -> None:
    """Cast the weights of a model or an adapter, and what the folder's other files say of them."""
    kind, size = getattr(torch, dtype), 0
    for file in sorted(folder.glob("*.safetensors")):
        tensors = load_file(file)
        size += sum(cast_form(tensor, kind).nbytes for tensor in tensors.values())
        file.unlink()  # not overwritten: the tensors are still read from there
        write_rows(file, tensors, kind)
    index, config = folder / SAFE_WEIGHTS_INDEX_NAME, folder / CONFIG_NAME
    if index.exists():
        said = json.loads(index.read_text(encoding="utf-8"))
        said["metadata"]["total_size"] = size
        _write(index, said)
    if config.exists():
        said = json.loads(config.read_text(encoding="utf-8"))
        said["dtype"] = dtype
        for section in said.values():  # such as `text_config`
            if isinstance(section, dict) and "dtype" in section:
                section["dtype"] = dtype
        _write(config, said)


def _write(path: Path, said: object) -> None:
    path.write_text(json.dumps(said, indent=2, sort_keys=True) + "\n", encoding="utf-8")
