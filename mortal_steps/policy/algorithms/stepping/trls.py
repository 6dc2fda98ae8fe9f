"""Classes of TRL's by their names, those of its experimental part too."""

import os
from importlib import import_module
from typing import Any

import trl

EXPERIMENTAL = {"ServerDistillation": "trl.experimental.server_distillation"}
"""Method -> the module that its trainer and its configuration are in."""


def trls(name: str) -> type[Any]:
    """Return a trainer or a configuration of TRL's, such as `RLOOTrainer`."""
    method = name.removesuffix("Trainer").removesuffix("Config")
    if method not in EXPERIMENTAL:
        found: type[Any] = getattr(trl, name)
        return found
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    experimental: type[Any] = getattr(import_module(EXPERIMENTAL[method]), name)
    return experimental


def trainer_of(configuration: str) -> type[Any]:
    """Return the trainer of TRL's that takes a configuration, such as `RLOOConfig`."""
    return trls(configuration.replace("Config", "Trainer"))
