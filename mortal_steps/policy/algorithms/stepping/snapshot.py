"""The state of TRL's trainer as it is at one moment, to be written while it is trained on.

    state                       in the snapshot
    optimizer's tensors         a copy in the CPU's memory
    weights                     a copy as well, but for those of a version published beside it
    adapter, schedule, counters the bytes of their files

The files written out of it are those of `state.save_state`, byte for byte on a CPU. On a GPU,
optimizer.pt says of each tensor that it lay in the CPU's memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel

from mortal_steps.errors import CorruptFileError
from mortal_steps.policy.algorithms.stepping import digests
from mortal_steps.policy.algorithms.stepping.loop import Stepped
from mortal_steps.policy.algorithms.stepping.state import (
    small_digests,
    write_counters,
    write_optimizer,
)
from mortal_steps.policy.model_files.adapter_base import AdapterBase
from mortal_steps.policy.model_files.writing import (
    link_model,
    published_tensors,
    save_settings,
    save_trained,
    write_model,
    write_settings,
)
from mortal_steps.store.folders import files_below
from mortal_steps.system.memory import available_bytes

ROOM = 2
"""Times the size of a snapshot that must be free in memory before it is taken."""
MODEL_FILE = "model.safetensors"
"""As in transformers, of a model in one file."""
ONE_FILE_BYTES = 40 << 30
"""A smaller model lies in one file (`export.LARGEST_FILE`)."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """What `save_state` writes, of one moment. Its tensors are nobody else's."""

    small_files: Mapping[str, bytes]
    model: Mapping[str, torch.Tensor]
    """Empty where the weights are among the small files, or in the file of a published version."""
    num_parameters: int
    optimizer: Mapping[str, Any]
    small_digests: Mapping[str, str]
    weights_digest: str
    links: bool
    """Whether the weights are those of the version that lies beside the checkpoint."""
    may_share: bool
    """Whether they may be, and have to be compared with it; a version that was cast holds others.
    """

    def save_state(
        self, folder: Path, beside: Mapping[str, tuple[Path, str]] | None = None
    ) -> dict[str, str]:
        """See `Stepper.save_state`."""
        write_settings(self.small_files, folder)
        hashed: dict[str, str] = {}
        if self.links:
            published = (beside or {}).get(MODEL_FILE)
            if published is None:
                raise CorruptFileError(f"no version is published that {folder} could share")
            hashed |= link_model(folder, {MODEL_FILE: published})
        elif self.model:
            shared = beside if self.may_share else None
            hashed |= write_model(folder, self.model, self.num_parameters, beside=shared)
        return hashed | write_optimizer(folder, self.optimizer)

    def digests(self) -> dict[str, str]:
        """See `Stepper.digests`."""
        optimizer = digests.digest(self.optimizer["state"])
        return {"weights": self.weights_digest, "optimizer": optimizer, **self.small_digests}


def take_snapshot(
    trainer: Stepped, base: AdapterBase, *, weights_digest: str, links: bool, may_share: bool
) -> Snapshot:
    """A snapshot of the trainer between two train steps, whose weights have this digest.

    If it `links`, the file of the version published with these weights takes the place of a copy
    (`published_as_trained`).
    """
    model, optimizer = trainer.model, trainer.optimizer.state_dict()
    return Snapshot(
        small_files=_small_files(trainer, base),
        model=_copy(_copied_weights(trainer, links=links)),
        num_parameters=model.num_parameters(),
        optimizer=_copy(optimizer),
        small_digests=small_digests(trainer, optimizer),
        weights_digest=weights_digest,
        links=links,
        may_share=may_share,
    )


def why_none(trainer: Stepped, *, links: bool) -> str | None:
    """Why no snapshot can be taken; None where one can."""
    if trainer.args.sync_ref_model:
        return "the reference model moves (training.trl.sync_ref_model), and is not copied"
    copied = [trainer.optimizer.state_dict(), _copied_weights(trainer, links=links)]
    size, free = sum(tensor.nbytes for tensor in _tensors(copied)), available_bytes()
    if free is not None and free < ROOM * size:
        return (
            f"a copy of the state takes {size / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are "
            f"free, less than {ROOM} times as much"
        )
    return None


def published_as_trained(trainer: Stepped) -> bool:
    """Whether a version published without a cast has the model's file of a checkpoint: the same
    tensors by the same names, in one file."""
    if isinstance(trainer.model, PeftModel):
        return False
    own = published_tensors(trainer.model, own_names=True)
    published = published_tensors(trainer.model)
    return (
        own.keys() == published.keys()
        and all(tensor.data_ptr() == published[name].data_ptr() for name, tensor in own.items())
        and sum(tensor.nbytes for tensor in own.values()) < ONE_FILE_BYTES
    )


def _copied_weights(trainer: Stepped, *, links: bool) -> Mapping[str, torch.Tensor]:
    """The live tensors of the model that a snapshot copies."""
    if links or isinstance(trainer.model, PeftModel):
        return {}
    return published_tensors(trainer.model, own_names=True)


def _small_files(trainer: Stepped, base: AdapterBase) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if isinstance(trainer.model, PeftModel):
            save_trained(trainer.model, folder, base, method=trainer._name)
        else:
            save_settings(trainer.model, folder)
        write_counters(trainer, folder)
        return {name: (folder / name).read_bytes() for name in files_below(folder)}


def _copy(content: Any) -> Any:
    """The same with a copy of each tensor in the CPU's memory."""
    if isinstance(content, torch.Tensor):
        return content.detach().to("cpu", copy=True)
    if isinstance(content, Mapping):
        return {key: _copy(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return type(content)(_copy(value) for value in content)
    return content


def _tensors(content: Any) -> Iterator[torch.Tensor]:
    if isinstance(content, torch.Tensor):
        yield content
    elif isinstance(content, Mapping | list | tuple):
        for value in content.values() if isinstance(content, Mapping) else content:
            yield from _tensors(value)
