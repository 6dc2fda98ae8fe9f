"""What of this process's surroundings lets no worker start, or not end."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from mortal_steps.errors import ConfigError

TRAINS_ON_SEVERAL = (
    "ACCELERATE_USE_DEEPSPEED",
    "ACCELERATE_USE_FSDP",
    "ACCELERATE_USE_MEGATRON_LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG",
)
"""What `accelerate launch` sets for a configuration of its own."""


def check_surroundings(environment: Mapping[str, str] = os.environ) -> None:
    """Raise `ConfigError` for what would end, or hold up, the workers of this machine."""
    if sys.flags.optimize >= 2:
        raise ConfigError(
            f"PYTHONOPTIMIZE={sys.flags.optimize} (python -OO) removes docstrings, and "
            "transformers cannot be imported without its own; unset it, or set it to 1"
        )
    processes = environment.get("WORLD_SIZE", "1")
    if processes not in ("", "1"):
        raise ConfigError(
            f"WORLD_SIZE = {processes!r} says that this process is one of several of a distributed "
            "job, as torchrun starts them, and torch would wait for the others; MORTAL trains in "
            "one process. Call it once, without torchrun, and unset WORLD_SIZE, RANK and LOCAL_RANK"
        )
    for name in TRAINS_ON_SEVERAL:
        if environment.get(name, "").lower() in ("1", "true", "yes", "on"):
            raise ConfigError(
                f"{name} = {environment[name]!r}, as `accelerate launch` sets it, asks accelerate "
                "to train on several GPUs; MORTAL trains on one. Call it without accelerate, and "
                f"unset {name}"
            )
