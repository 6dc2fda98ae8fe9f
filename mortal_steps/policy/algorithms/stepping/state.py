"""The state of TRL's trainer between two train steps: written, compared, and read back.

Private names used here: transformers `Trainer._save_scaler`; TRL `_name`, what it calls its method.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME

from mortal_steps.policy.algorithms.stepping import digests
from mortal_steps.policy.algorithms.stepping.loop import Stepped
from mortal_steps.policy.model_files.adapter_base import AdapterBase
from mortal_steps.policy.model_files.writing import save_trained
from mortal_steps.store.digests import HashingFile

REFERENCE_FILE = "reference.safetensors"


def save_state(
    trainer: Stepped,
    folder: Path,
    base: AdapterBase,
    beside: Mapping[str, tuple[Path, str]] | None = None,
) -> dict[str, str]:
    """Write all that it takes to go on bit for bit, with the model as trained from `base`.

    Returns digests of files that were hashed while they were written, by name; model files that lie
    `beside` are linked (`export.save_trained`).

    Random streams are not part of it: each train step is seeded. Nor are TRL's micro-step counter
    and its buffered batch: at the end of a train step the one stands at a multiple of its period,
    which is as good as 0, and the other is used up.
    """
    digests = save_trained(
        trainer.model, folder, base, method=trainer._name, own_names=True, beside=beside
    )
    digests |= write_optimizer(folder, trainer.optimizer.state_dict())
    write_counters(trainer, folder)
    if trainer.args.sync_ref_model:
        safetensors.torch.save_model(trainer.ref_model, str(folder / REFERENCE_FILE))
    return digests


def write_optimizer(folder: Path, state: Mapping[str, Any]) -> dict[str, str]:
    """Write an optimizer's state as transformers does, which hashes nothing; its digest."""
    with HashingFile(folder / OPTIMIZER_NAME) as file:
        torch.save(state, file)
        file.flush()
        return {OPTIMIZER_NAME: file.digest}


def write_counters(trainer: Stepped, folder: Path) -> None:
    """Write the schedule, the counters and what the trainer adapts by itself: small files."""
    torch.save(trainer.lr_scheduler.state_dict(), folder / SCHEDULER_NAME)
    trainer._save_scaler(str(folder))
    trainer.state.save_to_json(str(folder / "trainer_state.json"))
    trainer.save_control(folder)


def restore_reference(trainer: Stepped, folder: Path, *, renewed: bool) -> None:
    """Read the moving reference model, which transformers leaves alone; all else it restores.

    A folder that was `renewed` by another configuration may have none: it begins to move here.
    """
    if not trainer.args.sync_ref_model:
        return
    reference = folder / REFERENCE_FILE
    if not renewed or reference.exists():
        safetensors.torch.load_model(trainer.ref_model, str(reference))


def state_digests(trainer: Stepped) -> dict[str, str]:
    """Digest of each part of what `save_state` writes."""
    optimizer = trainer.optimizer.state_dict()
    parts = {
        "weights": digests.weights_digest(trainer.model),
        "optimizer": digests.digest(optimizer["state"]),
        **small_digests(trainer, optimizer),
    }
    if trainer.args.sync_ref_model:
        parts["reference"] = digests.weights_digest(trainer.ref_model)
    return parts


def small_digests(trainer: Stepped, optimizer: Mapping[str, Any]) -> dict[str, str]:
    """Those of the parts that are small: the schedule, and what the trainer adapts by itself."""
    schedule = [optimizer["param_groups"], trainer.lr_scheduler.state_dict()]
    return {"schedule": digests.digest(schedule), **trainer.control_digests()}
