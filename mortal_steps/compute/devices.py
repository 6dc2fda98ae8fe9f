"""Finds the GPUs of this machine, and checks those that a configuration names.

torch is asked once, in a process of its own: how many GPUs there are, what they are called, how
much memory they have, and whether they compute in bfloat16.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import Literal

from mortal_steps.config import LocalConfig, RoleConfig
from mortal_steps.errors import ConfigError
from mortal_steps.system.gpus import NONE, has_gpu

VISIBLE = "CUDA_VISIBLE_DEVICES"
ASK = """
import json, torch
found = []
for index in range(torch.cuda.device_count()):
    about = torch.cuda.get_device_properties(index)
    with torch.cuda.device(index):
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    of = {"name": about.name, "memory": about.total_memory, "bfloat16": native}
    found.append(of | {"uuid": str(getattr(about, "uuid", index))})
print(json.dumps(found))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One GPU."""

    name: str
    memory: int
    """Bytes."""
    bfloat16: bool
    """Whether it computes in bfloat16, and does not emulate that."""
    uuid: str
    address: str = ""
    """The value of CUDA_VISIBLE_DEVICES with which a process sees it alone."""


WITHOUT_BFLOAT16 = ("T4", "V100", "P100", "P4", "K80")


def gpus_elsewhere(name: str, memory: int, count: int, worker: str) -> tuple[Gpu, ...]:
    """Return the GPUs of a worker on a machine that cannot be asked. Their `memory` in bytes is 0
    if it is not known."""
    return tuple(
        Gpu(
            name=name,
            memory=memory,
            bfloat16=name not in WITHOUT_BFLOAT16,
            uuid=f"{worker}-{index}",
        )
        for index in range(count)
    )


def ask_gpus(python: str, visible: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs that an interpreter sees with this value of CUDA_VISIBLE_DEVICES, or without
    one. Where there are none, torch is not asked. Raises `ConfigError` for an interpreter that
    cannot tell."""
    hidden = visible is not None and visible.strip() in NONE
    if hidden or not has_gpu() or shutil.which(python) is None:
        return ()
    return _ask(python, visible)


@functools.cache
def _ask(python: str, visible: str | None) -> tuple[Gpu, ...]:
    environment = {**os.environ, **({} if visible is None else {VISIBLE: visible})}
    asked = subprocess.run(
        [python, "-c", ASK], env=environment, capture_output=True, text=True, check=False
    )
    if asked.returncode:
        problem = asked.stderr.strip().splitlines()[-1:] or [f"exit status {asked.returncode}"]
        raise ConfigError(f"{python} cannot count its CUDA devices: {problem[0]}")
    found = json.loads(asked.stdout.strip().splitlines()[-1])
    names = named(visible) if visible else [str(index) for index in range(len(found))]
    return tuple(
        Gpu(**about, address=name) for about, name in zip(found, names[: len(found)], strict=True)
    )


def named(devices: str) -> list[str]:
    """Return the GPUs in a value of CUDA_VISIBLE_DEVICES."""
    return [name.strip() for name in devices.split(",") if name.strip() not in NONE]


def devices_of(role_config: RoleConfig) -> tuple[str, ...]:
    """Return the CUDA_VISIBLE_DEVICES values that the configuration has for a role."""
    of_env = role_config.env.get(VISIBLE)
    return role_config.devices or (() if of_env is None else (of_env,))


def gpus_of_role(local: LocalConfig, role: Literal["actor", "rollout"]) -> dict[str, Gpu]:
    """Return the GPUs that a role's workers may use, named or all that are visible, by the names
    given there. Raises `ConfigError` for one that is not there."""
    role_config = getattr(local, role)
    seen = _visible_to(local, role)
    if not devices_of(role_config):
        return {gpu.address: gpu for gpu in seen}
    found: dict[str, Gpu] = {}
    python, key = role_config.python or sys.executable, f"compute.local.{role}.devices"
    for devices in devices_of(role_config):
        found |= _named_gpus(devices, seen, python, key)
    return found


def gpus_named(devices: str, key: str) -> dict[str, Gpu]:
    """Return the GPUs in a value of CUDA_VISIBLE_DEVICES, by the names given there. Raises
    `ConfigError` that names the key for one that is not there."""
    seen = ask_gpus(sys.executable, os.environ.get(VISIBLE)) if named(devices) else ()
    return _named_gpus(devices, seen, sys.executable, key)


def _named_gpus(devices: str, seen: tuple[Gpu, ...], python: str, key: str) -> dict[str, Gpu]:
    return {name: _find(name, seen) or _ask_for(name, python, key) for name in named(devices)}


def _visible_to(local: LocalConfig, role: Literal["actor", "rollout"]) -> tuple[Gpu, ...]:
    """Return the GPUs a role may see; the actor's interpreter answers unless it has no CUDA."""
    own = getattr(local, role).python or sys.executable
    visible = os.environ.get(VISIBLE)
    found = ask_gpus(local.actor.python or sys.executable, visible)
    return found or ask_gpus(own, visible)


def _find(name: str, seen: tuple[Gpu, ...]) -> Gpu | None:
    for gpu in seen:
        if name == gpu.address or (name.startswith("GPU-") and gpu.uuid.startswith(name[4:])):
            return replace(gpu, address=name)
    return None


def _ask_for(name: str, python: str, key: str) -> Gpu:
    """Return a GPU that the environment hides, or that has another kind of name."""
    found = ask_gpus(python, name)
    if not found:
        raise ConfigError(
            f"{key} names {name!r}, and with {VISIBLE}={name} its interpreter sees no CUDA device; "
            f"name devices that nvidia-smi lists, or leave {key} out"
        )
    return found[0]
