"""Make a model folder of a GGUF file of llama.cpp, whose weights are mostly quantized."""

import importlib.util
import shutil
from pathlib import Path
from typing import Any

from mortal_steps.errors import ModelError
from mortal_steps.models.local_folder import is_gguf
from mortal_steps.store.files import hidden_beside, writing


def check_gguf(file: Path) -> None:
    """Raise `ModelError` unless the file is a GGUF that this machine can read."""
    if file.is_dir():
        there = ", ".join(sorted(path.name for path in file.glob("*.gguf"))) or "none there"
        raise ModelError(f"{file} is a folder; name a .gguf file ({there})")
    if not file.is_file():
        raise ModelError(f"no such file: {file}")
    if not is_gguf(file):
        raise ModelError(f"{file} is no GGUF file: it does not begin with the letters GGUF")
    if importlib.util.find_spec("gguf") is None:
        raise ModelError(
            "reading GGUF files needs the package gguf: pip install 'gguf>=0.19' (or "
            "'mortal-rl[gguf]'), then call this again"
        )


def import_gguf(file: Path, folder: Path, dtype: str) -> int:
    """Write a new model folder with the file's weights in `dtype` and its tokenizer; return the
    number of parameters. Raises `ModelError` for what `check_gguf` refuses and for a model that
    transformers cannot read, and `StoreError`."""
    check_gguf(file)
    # Imported where used: takes seconds.
    from mortal_steps.policy.model_files.tokenizer import save_tokenizer
    from mortal_steps.policy.model_files.writing import save_model

    model, tokenizer = _read(file, dtype)
    partial = hidden_beside(folder, "partial")
    try:
        with writing(folder):
            partial.mkdir(parents=True)
            save_model(model, partial)  # transformers refuses: it takes the weights for quantized
            save_tokenizer(tokenizer, partial)
            partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return sum(parameter.numel() for parameter in model.parameters())


def _read(file: Path, dtype: str) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    where: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    try:
        tokenizer = AutoTokenizer.from_pretrained(file.parent, **where)
        model, loaded = AutoModelForCausalLM.from_pretrained(
            file.parent,
            dtype=dtype,
            quantization_config=GgufConfig(dequantize=True),
            output_loading_info=True,
            **where,
        )
    except (OSError, ValueError, KeyError, NotImplementedError, RuntimeError) as error:
        raise ModelError(f"transformers cannot read {file}: {error}") from error
    if missing := sorted(loaded["missing_keys"]):
        some = ", ".join(missing[:3])
        raise ModelError(
            f"{file} lacks {len(missing)} of the model's tensors ({some}): it is not whole, or "
            "transformers does not know its kind well"
        )
    return model, tokenizer
