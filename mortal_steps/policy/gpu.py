"""What torch can do with this machine's GPU, where training runs, and why it is not there."""

from typing import Any

from mortal_steps.config import RolloutConfig
from mortal_steps.policy.ranks.world import num_ranks
from mortal_steps.rollout.weight_sync.table import IN_PLACE, RELOAD
from mortal_steps.system.gpus import expects_gpu
from mortal_steps.types import TrainingPlace


def has_bfloat16() -> bool:
    """Whether torch's accelerator has bfloat16 without emulation; `compute.devices` asks it."""
    import torch
    from transformers.utils import is_torch_bf16_gpu_available

    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(is_torch_bf16_gpu_available())


def empty_cache() -> None:
    """Give unused GPU memory back, for an engine that wakes or starts there."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def memory() -> dict[str, int]:
    """Return the bytes that this process has resident and, with a GPU, the most that it has had in
    use and reserved there since the last call."""
    import psutil
    import torch

    found = {"resident": psutil.Process().memory_info().rss}
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.max_memory_allocated()
        found["gpu_reserved"] = torch.cuda.max_memory_reserved()
        torch.cuda.reset_peak_memory_stats()
    return found


def gives_back(rollout: RolloutConfig) -> bool:
    """Return whether engines may need, between train steps, what torch's allocator holds."""
    return rollout.sleep_while_training or (rollout.weight_sync or RELOAD) not in IN_PLACE


def why_unused() -> str | None:
    """Why torch cannot use this machine's GPU, in torch's words; None if it can, if there is none,
    and where this process shall see none."""
    import torch

    if torch.cuda.is_available() or not expects_gpu():
        return None
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return f"torch {torch.__version__}: {str(error).splitlines()[0].rstrip('.')}"
    return f"torch {torch.__version__} sees no CUDA device"


def on_one_gpu() -> dict[str, Any]:
    """Return `from_pretrained`'s arguments for the first GPU, if any: by default, TRL lets
    accelerate deal layers out to all GPUs and the host. Of several ranks, each takes its own."""
    import torch

    if not torch.cuda.is_available():
        return {}
    return {"device_map": {"": "cuda:0"} if num_ranks() == 1 else None}


def on_cpu_beside_gpu() -> str | None:
    """Return a sentence for a machine whose GPU torch cannot use."""
    reason = why_unused()
    if reason is None:
        return None
    return (
        f"this machine has a GPU, and training runs on the CPU, because torch cannot use it "
        f"({reason}). If that is what you want, set compute.local.actor.devices = ['']"
    )


def training_place(trainer: Any) -> TrainingPlace:
    """Return the device of a Trainer, the type of its weights, and its number of threads."""
    import torch

    device = trainer.args.device
    name = str(device)
    if device.type == "cuda":
        name = f"{device} ({torch.cuda.get_device_name(device)})"
        if torch.cuda.device_count() > num_ranks():
            name += f", one of {torch.cuda.device_count()} visible"
    trained = next(p for p in trainer.model.parameters() if p.requires_grad)
    precision = str(trained.dtype).removeprefix("torch.")
    for autocast in ("bf16", "fp16"):
        if getattr(trainer.args, autocast):
            precision += f" under {autocast} autocast"
    return TrainingPlace(
        device=name, precision=precision, threads=torch.get_num_threads(), ranks=num_ranks()
    )
