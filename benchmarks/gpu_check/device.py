"""What computes here. Asked in a process of its own: one that has used CUDA cannot fork."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

ASK = """
import json, torch
from mortal_steps.policy.gpu import why_unused
gpu = torch.cuda.is_available()
properties = torch.cuda.get_device_properties(0) if gpu else None
print(json.dumps({
    "name": properties.name if gpu else f"the CPU ({torch.get_num_threads()} threads)",
    "is_gpu": gpu,
    "memory_gb": round(properties.total_memory / 1e9, 1) if gpu else None,
    "torch": torch.__version__,
    "cuda": torch.version.cuda,
    "why_no_gpu": why_unused(),
}))
"""


def describe_device() -> dict[str, Any]:
    """Name, memory and versions."""
    asked = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    described: dict[str, Any] = json.loads(asked.stdout)
    return described
