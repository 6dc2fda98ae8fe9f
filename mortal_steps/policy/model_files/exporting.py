"""Exports a checkpoint as a model folder that every engine loads, with the code that the actor
uses.

    python -m mortal_steps.policy.model_files.exporting CHECKPOINT FOLDER '{"dtype": ...}'

The file has the bits that the actor published, or would have published, after the same step.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mortal_steps.errors import CorruptFileError, DiskError, ModelError, StoreError
from mortal_steps.store.files import failed_write, is_write_error

UNWRITTEN: Mapping[int, type[StoreError]] = {3: DiskError, 4: StoreError}
"""By exit code of the process: the error for a folder that could not be written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Export:
    """What is needed for an export besides the checkpoint's folder."""

    base: str | None
    """Folder of the model that the adapter belongs to; None for full training."""
    dtype: str
    trust_remote_code: bool
    quantization: Mapping[str, Any] = field(default_factory=dict)
    """`model.quantization`: how the base was loaded that the adapter was trained on."""


def export_in_process(checkpoint: Path, folder: Path, export: Export) -> None:
    """Call `export_model` in a process whose memory is freed. Raises `CorruptFileError` if the
    checkpoint is removed meanwhile, `StoreError` for a folder that cannot be written, `DiskError`
    among them, and else `ModelError`."""
    command = [sys.executable, "-P", "-m", __name__, str(checkpoint), str(folder)]
    done = subprocess.run(
        [*command, json.dumps(asdict(export))], capture_output=True, text=True, check=False
    )
    if done.returncode in UNWRITTEN:
        raise UNWRITTEN[done.returncode](done.stderr.strip().splitlines()[-1])
    if done.returncode and not checkpoint.exists():
        raise CorruptFileError(f"{checkpoint} is missing: it was removed while it was exported")
    if done.returncode:
        raise ModelError(f"{checkpoint} cannot be exported:\n{done.stderr.strip()}")


def export_model(checkpoint: Path, folder: Path, export: Export) -> None:
    """Write the model folder without a tokenizer, an adapter merged into its base. Raises
    `CheckpointMismatchError` for another model's checkpoint."""
    # Imported where used: the process that waits for this one needs no torch.
    import torch
    from peft import PeftModel
    from transformers import AutoConfig, BitsAndBytesConfig, GenerationConfig

    from mortal_steps.models.model_class import trained_class
    from mortal_steps.policy import private
    from mortal_steps.policy.model_files.restore import load_model
    from mortal_steps.policy.model_files.writing import save_model

    trusts = {"trust_remote_code": export.trust_remote_code}
    if export.base is not None:
        kind = trained_class(AutoConfig.from_pretrained(export.base, **trusts))
        if not export.quantization:
            base = kind.from_pretrained(export.base, dtype=export.dtype, **trusts)
            save_model(PeftModel.from_pretrained(base, checkpoint), folder)
            return
        quantized = BitsAndBytesConfig(**export.quantization)
        base = kind.from_pretrained(
            export.base, dtype=export.dtype, quantization_config=quantized, **trusts
        )
        adapted = PeftModel.from_pretrained(base, checkpoint, is_trainable=True)
        for name, parameter in adapted.named_parameters():  # as TRL's trainers do
            if parameter.requires_grad and "lora_magnitude_vector" not in name:
                parameter.data = parameter.data.to(torch.bfloat16)
        save_model(adapted, folder)
        return
    config = AutoConfig.from_pretrained(checkpoint, **trusts)
    kind = trained_class(config)
    if hasattr(kind, "from_config"):
        model = kind.from_config(config, dtype=export.dtype, **trusts)
    else:
        model = private.model_from(kind, config, export.dtype)
    load_model(model, checkpoint)
    if (checkpoint / "generation_config.json").exists():
        model.generation_config = GenerationConfig.from_pretrained(checkpoint)
    save_model(model, folder)


def main(checkpoint: str, folder: str, export: str) -> None:
    """Export as the arguments say, of which the last is JSON. For a folder that cannot be written,
    end with a code of `UNWRITTEN` and the message in the last line of the standard error stream."""
    try:
        export_model(Path(checkpoint), Path(folder), Export(**json.loads(export)))
    except Exception as error:
        if not is_write_error(error, Path(folder)):
            raise
        failed = failed_write(Path(folder), error)
        sys.stderr.write(" ".join(str(failed).split()) + "\n")
        sys.exit(next(code for code, kind in UNWRITTEN.items() if type(failed) is kind))


if __name__ == "__main__":
    main(*sys.argv[1:])
