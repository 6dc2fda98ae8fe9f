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
print(json.dumps({
    "name": torch.cuda.get_device_name(0) if gpu else "the CPU",
    "is_gpu": gpu,
    "torch": torch.__version__,
    "why_no_gpu": why_unused(),
}))
"""


def describe_device() -> dict[str, Any]:
    """Name, driver, torch's version, and why torch cannot use the GPU, if so."""
    asked = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    described: dict[str, Any] = json.loads(asked.stdout)
    return {**described, "driver": _driver()}


def _driver() -> str | None:
    """Return the version of the GPU's driver; None without nvidia-smi."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return asked.stdout.split("\n")[0].strip()
