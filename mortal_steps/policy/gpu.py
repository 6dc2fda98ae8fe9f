"""Why torch computes on the CPU of a machine that has a GPU."""

from __future__ import annotations

import torch

from mortal_steps.system.gpus import expects_gpu


def why_unused() -> str | None:
    """Why torch cannot use this machine's GPU, in torch's words; None if it can, if there is none,
    and where this process shall see none."""
    if torch.cuda.is_available() or not expects_gpu():
        return None
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return f"torch {torch.__version__}: {str(error).splitlines()[0].rstrip('.')}"
    return f"torch {torch.__version__} sees no CUDA device"
