"""The state of TRL's trainer between two train steps: written, compared, and read back.

Private names used here: transformers `Trainer._save_scaler`; TRL `_name`, what it calls its method.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME

from mortal_steps.policy import digests
from mortal_steps.policy.algorithms.stepping.loop import Stepped
from mortal_steps.policy.base_model import Base
from mortal_steps.policy.export import save_trained
from mortal_steps.store.hashing_file import HashingFile

REFERENCE_FILE = "reference.safetensors"


def save_state(
    trainer: Stepped,
    folder: Path,
    base: Base,
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
    # As transformers does it, which hashes nothing.
    with HashingFile(folder / OPTIMIZER_NAME) as file:
        torch.save(trainer.optimizer.state_dict(), file)
        file.flush()
        digests[OPTIMIZER_NAME] = file.digest
    torch.save(trainer.lr_scheduler.state_dict(), folder / SCHEDULER_NAME)
    trainer._save_scaler(str(folder))
    trainer.state.save_to_json(str(folder / "trainer_state.json"))
    trainer.save_control(folder)
    if trainer.args.sync_ref_model:
        safetensors.torch.save_model(trainer.ref_model, str(folder / REFERENCE_FILE))
    return digests


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
    schedule = [optimizer["param_groups"], trainer.lr_scheduler.state_dict()]
    parts = {
        "weights": digests.weights_digest(trainer.model),
        "optimizer": digests.digest(optimizer["state"]),
        "schedule": digests.digest(schedule),
    }
    parts |= trainer.control_digests()
    if trainer.args.sync_ref_model:
        parts["reference"] = digests.weights_digest(trainer.ref_model)
    return parts
