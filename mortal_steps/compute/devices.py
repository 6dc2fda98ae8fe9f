"""Whether the GPUs that a configuration names for local workers are there.

A process that is given a device which does not exist sees none at all, and would compute on the CPU
without a word.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Literal

from mortal_steps.config import RunConfig
from mortal_steps.errors import ConfigError

COUNT = "import torch; print(torch.cuda.device_count())"
NONE = ("", "-1")
"""How CUDA_VISIBLE_DEVICES says that a process shall see no GPU."""


def check_devices(config: RunConfig) -> None:
    """Raise `ConfigError` for devices of the actor or of a rollout worker that are not there."""
    if config.compute.backend == "modal":
        return  # where `devices` are of no account
    for role in ("actor", "rollout"):
        _check_role(config, role)


def _check_role(config: RunConfig, role: Literal["actor", "rollout"]) -> None:
    place = getattr(config.compute.local, role)
    for devices in dict.fromkeys(place.devices):
        wanted = [name for name in devices.split(",") if name.strip() not in NONE]
        found = _visible(place.python or sys.executable, devices) if wanted else 0
        if found < len(wanted):
            key = f"compute.local.{role}.devices"
            raise ConfigError(
                f"{key} names {devices!r}, and with CUDA_VISIBLE_DEVICES={devices} its interpreter "
                f"sees {found} of {len(wanted)} CUDA devices; name devices that nvidia-smi lists, "
                f"or leave {key} out to compute on the CPU"
            )


def _visible(python: str, devices: str) -> int:
    """CUDA devices that an interpreter sees."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": devices}
    asked = subprocess.run(
        [python, "-c", COUNT], env=environment, capture_output=True, text=True, check=False
    )
    if asked.returncode:
        problem = asked.stderr.strip().splitlines()[-1:] or [f"exit status {asked.returncode}"]
        raise ConfigError(f"{python} cannot count its CUDA devices: {problem[0]}")
    return int(asked.stdout)
