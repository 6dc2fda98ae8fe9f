"""The state of TRL's trainer between two train steps: taken, written, compared, and read back.

    state                       in a `TrainerState`
    optimizer's tensors         the live ones, or a copy in the CPU's memory
    weights, moving reference   the same
    adapter, schedule, counters the bytes of their files

Random streams are not part of it: each train step is seeded. Nor are TRL's micro-step counter and
its buffered batch: at the end of a train step the one stands at a multiple of its period, which is
as good as 0, and the other is used up.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME

from mortal_steps.policy import private
from mortal_steps.policy.algorithms.base import AdapterBase
from mortal_steps.policy.algorithms.stepping import digests
from mortal_steps.policy.algorithms.stepping.loop import Stepped
from mortal_steps.policy.model_files.restore import load_model
from mortal_steps.policy.model_files.rows import mapped, save_pickle, tensors_in
from mortal_steps.policy.model_files.writing import (
    published_tensors,
    save_settings,
    save_trained,
    write_tensors,
)
from mortal_steps.policy.ranks.parts import local_of, sums_of_parts
from mortal_steps.policy.ranks.world import num_ranks, rank
from mortal_steps.rollout.weight_sync.tensor_digests import AddUp
from mortal_steps.store.folders import files_below
from mortal_steps.system.resources import available_bytes

ROOM = 2
"""Times the size of a copy that must be free in memory before it is made."""
REFERENCE = "reference"
"""What the files of the reference model are called, as those of the model are `model`."""


@dataclass(frozen=True, kw_only=True)
class TrainerState:
    """All that it takes to go on bit for bit, at one moment."""

    small_files: Mapping[str, bytes]
    model: Mapping[str, torch.Tensor]
    """By the names of its modules; empty where an adapter is trained, which is among the files."""
    reference: Mapping[str, torch.Tensor]
    """Of the reference model, where it moves."""
    optimizer: Mapping[str, Any]
    known_digests: Mapping[str, str]
    """Of a copy; the digests of live tensors are `state_digests`. That of the optimizer's tensors,
    which are the most, is among them where ranks have to add it up."""

    def save_state(self, folder: Path) -> None:
        """Write it as `restore_reference` and transformers read it; of what is dealt out to ranks,
        each writes its part."""
        for name, content in self.small_files.items() if rank() == 0 else ():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        if self.model:
            write_tensors(folder, self.model)
        if self.reference:
            write_tensors(folder, self.reference, REFERENCE)
        save_pickle(folder / OPTIMIZER_NAME, self.optimizer)

    def digests(self) -> dict[str, str]:
        if "optimizer" in self.known_digests:
            return dict(self.known_digests)
        return {"optimizer": digests.digest(self.optimizer["state"]), **self.known_digests}


def take_state(
    trainer: Stepped, base: AdapterBase, *, copy: bool, add_up: AddUp = sums_of_parts
) -> TrainerState:
    """Take the trainer's state. With `copy`, its tensors are nobody else's; `add_up` returns the
    sums of its weights."""
    tensors, known = _tensors_of(trainer), dict[str, str]()
    if copy:
        known = (state_digests if trainer.is_fsdp_enabled else _small_digests)(trainer, add_up)
        tensors = mapped(lambda tensor: tensor.detach().to("cpu", copy=True), tensors)
    return TrainerState(
        small_files=_small_files(trainer, base),
        known_digests=known,
        **tensors,
    )


def state_digests(trainer: Stepped, add_up: AddUp = sums_of_parts) -> dict[str, str]:
    optimizer = digests.digest(trainer.optimizer.state_dict()["state"])
    return {"optimizer": optimizer, **_small_digests(trainer, add_up)}


def why_no_copy(trainer: Stepped) -> str | None:
    """Return why no copy of the state can be made; None where one can."""
    copies = num_ranks() if trainer.is_fsdp_enabled else 1
    size = copies * sum(local_of(each).nbytes for each in tensors_in(_tensors_of(trainer)))
    free = available_bytes()
    if free is None or free >= ROOM * size:
        return None
    return (
        f"a copy of the state takes {size / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are "
        f"free, less than {ROOM} times as much"
    )


def restore_reference(trainer: Stepped, folder: Path, *, renewed: bool) -> None:
    """Read the moving reference model, which transformers does not restore; one `renewed` by
    another configuration may begin here."""
    if _moves_reference(trainer) and (not renewed or any(folder.glob(f"{REFERENCE}*"))):
        load_model(trainer.ref_model, folder, REFERENCE)


def _moves_reference(trainer: Stepped) -> bool:
    """Whether the reference model follows the policy. Not every trainer has one."""
    return bool(getattr(trainer.args, "sync_ref_model", False))


def _tensors_of(trainer: Stepped) -> dict[str, Any]:
    """Return the parts of a `TrainerState` that are large, as they live."""
    adapted, moves = isinstance(trainer.model, PeftModel), _moves_reference(trainer)
    return {
        "model": {} if adapted else published_tensors(trainer.model, own_names=True),
        "reference": published_tensors(trainer.ref_model, own_names=True) if moves else {},
        "optimizer": trainer.optimizer.state_dict(),
    }


def _small_files(trainer: Stepped, base: AdapterBase) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if isinstance(trainer.model, PeftModel):
            save_trained(trainer.model, folder, base, method=private.method_of(trainer))
        else:
            save_settings(trainer.model, folder)
        torch.save(trainer.lr_scheduler.state_dict(), folder / SCHEDULER_NAME)
        private.save_scaler(trainer, folder)
        trainer.state.save_to_json(str(folder / "trainer_state.json"))
        trainer.save_control(folder)
        return {name: (folder / name).read_bytes() for name in files_below(folder)}


def _small_digests(trainer: Stepped, add_up: AddUp) -> dict[str, str]:
    """Return the digests of all parts but the optimizer's tensors, which are the most."""
    groups = trainer.optimizer.state_dict()["param_groups"]
    parts = {
        "weights": digests.weights_digest(trainer.model, add_up),
        "schedule": digests.digest([groups, trainer.lr_scheduler.state_dict()]),
        **trainer.control_digests(),
    }
    if _moves_reference(trainer):
        parts["reference"] = digests.weights_digest(trainer.ref_model)
    return parts
