"""Where and in which numbers a trainer trains."""

from __future__ import annotations

import torch

from mortal_steps.policy.algorithms.stepping.loop import Stepped
from mortal_steps.types import TrainingPlace


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
