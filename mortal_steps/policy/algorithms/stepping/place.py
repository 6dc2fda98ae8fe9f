"""Where and in which numbers a trainer trains."""

from __future__ import annotations

from typing import Any

import torch

from mortal_steps.policy.algorithms.stepping.loop import Stepped
from mortal_steps.policy.gpu import why_unused
from mortal_steps.types import TrainingPlace


def on_one_gpu() -> dict[str, Any]:
    """Arguments of `from_pretrained` for a model that the first GPU trains; none without a GPU.

    By default, TRL lets accelerate deal the layers out to all GPUs, and to the host's memory where
    they are short of room.
    """
    return {"device_map": {"": "cuda:0"}} if torch.cuda.is_available() else {}


def on_cpu_beside_gpu() -> str | None:
    """A sentence for a machine whose GPU torch cannot use."""
    reason = why_unused()
    if reason is None:
        return None
    return (
        f"this machine has a GPU, and training runs on the CPU, because torch cannot use it "
        f"({reason}). If that is what you want, set compute.local.actor.devices = ['']"
    )


def training_place(trainer: Stepped) -> TrainingPlace:
    """Device, type of the weights, threads."""
    device = trainer.args.device
    name = str(device)
    if device.type == "cuda":
        name = f"{device} ({torch.cuda.get_device_name(device)})"
        if torch.cuda.device_count() > 1:
            name += f", one of {torch.cuda.device_count()} visible"
    trained = next(p for p in trainer.model.parameters() if p.requires_grad)
    precision = str(trained.dtype).removeprefix("torch.")
    for autocast in ("bf16", "fp16"):
        if getattr(trainer.args, autocast):
            precision += f" under {autocast} autocast"
    return TrainingPlace(device=name, precision=precision, threads=torch.get_num_threads())
