"""What torch can do with this machine's GPU, and why it computes on the CPU beside one."""

from __future__ import annotations

from mortal_steps.system.gpus import expects_gpu


def has_bfloat16() -> bool:
    """Whether torch's accelerator computes in bfloat16; a CUDA device that emulates it does not.

    `compute.devices` asks the same before a run begins.
    """
    import torch
    from transformers.utils import is_torch_bf16_gpu_available

    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(is_torch_bf16_gpu_available())


def empty_cache() -> None:
    """Give back what torch's allocator holds of the GPU without using it, for an engine that wakes
    or starts there."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


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
