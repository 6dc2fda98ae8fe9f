"""Checks the GPUs that a configuration names: whether they exist, and which workers share one.

A process that is given a device that does not exist sees no GPU at all, and would compute on the
CPU without saying so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Literal

from mortal_steps.config import RunConfig
from mortal_steps.config.engines import ALWAYS_THERE, engine_kind
from mortal_steps.config.gpus import gpu_count
from mortal_steps.errors import ConfigError
from mortal_steps.system.gpus import NONE, expects_gpu, has_gpu

BFLOAT16 = """
import torch
print(torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False))
"""
WITHOUT_BFLOAT16 = ("T4",)
"""GPUs on Modal that have no bfloat16."""
COUNT = "import torch; print(torch.cuda.device_count())"
SAMPLERS_SHARE = 0.6
"""Part of a GPU's memory that is divided equally among the actor and the rollout workers on it: so
one rollout worker beside the actor takes 0.3, as with TRL."""
FREE_GPU = 0.9
"""Part of a GPU's memory that the rollout workers on it take together if the actor is elsewhere."""


def check_devices(config: RunConfig) -> None:
    """Raise `ConfigError` for devices of the actor or of a rollout worker that do not exist, and
    for more than one GPU for the actor."""
    if config.compute.backend == "modal":
        _check_modal_actor(config)
        return  # where `devices` are of no account
    for role in ("actor", "rollout"):
        _check_role(config, role)
    if config.rollout.sleep_while_training:
        _check_sleep(config)
    for devices in config.compute.local.actor.devices:
        if len(_named(devices)) > 1:
            raise ConfigError(
                f"compute.local.actor.devices names {devices!r}; the actor trains on one GPU. Name "
                f"one, such as {_named(devices)[0]!r}, and give the others to rollout workers with "
                "compute.local.rollout.devices"
            )


def sharing_gpus(config: RunConfig) -> RunConfig:
    """The configuration for a rollout worker of this machine: where several workers, or the actor,
    are on its GPU, `rollout.engine_options` say how much of the memory it takes, unless they do.

    It has no effect on a machine without a GPU.
    """
    key = engine_kind(config.rollout.engine or ALWAYS_THERE).memory_option
    share = _share(config)
    if key is None or share is None or key in config.rollout.engine_options:
        return config
    options = {**config.rollout.engine_options, key: share}
    rollout = config.rollout.model_copy(update={"engine_options": options})
    return config.model_copy(update={"rollout": rollout})


def measures_memory(config: RunConfig) -> bool:
    """Whether a rollout worker of this machine measures, while it starts, how much memory is free
    on a GPU that it shares with the actor or with others."""
    if not has_gpu():
        return False
    kind = engine_kind(config.rollout.engine or ALWAYS_THERE)
    return kind.memory_option is not None and _share(config) is not None


def samples_on_gpu(config: RunConfig) -> bool:
    """Whether rollout workers compute on GPUs."""
    if config.compute.backend == "modal":
        return config.compute.gpu_of("rollout") is not None
    devices = config.compute.local.rollout.devices
    return has_gpu() and any(map(_named, devices)) if devices else expects_gpu()


def have_bfloat16(config: RunConfig) -> bool:
    """Whether actor and rollout workers compute on GPUs that support bfloat16."""
    if config.compute.backend == "modal":
        gpus = [config.compute.gpu_of(role) or "" for role in ("actor", "rollout")]
        return not any(gpu.partition(":")[0].upper() in WITHOUT_BFLOAT16 for gpu in gpus)
    if not has_gpu():
        return False  # without an import of torch, which takes seconds
    return all(_has_bfloat16(config, role) for role in ("actor", "rollout"))


def _has_bfloat16(config: RunConfig, role: Literal["actor", "rollout"]) -> bool:
    place = getattr(config.compute.local, role)
    environment = {**os.environ, **place.env}
    if place.devices:
        environment["CUDA_VISIBLE_DEVICES"] = place.devices[0]
    asked = subprocess.run(
        [place.python or sys.executable, "-c", BFLOAT16],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.returncode == 0 and asked.stdout.strip() == "True"


def _share(config: RunConfig) -> float | None:
    """Part of the GPU's memory for one rollout worker; None if it has the GPU to itself."""
    actor, samplers = config.compute.local.actor.devices, config.compute.local.rollout.devices
    workers = -(-config.num_rollout_workers // max(len(samplers), 1))
    if _overlap(actor, samplers):
        return round(SAMPLERS_SHARE / (workers + 1), 3)
    return round(FREE_GPU / workers, 3) if workers > 1 else None


def _overlap(some: tuple[str, ...], others: tuple[str, ...]) -> bool:
    """Whether two roles have a GPU in common. A role that names no devices sees all of them."""
    if not some or not others:
        return True
    used = {name for devices in some for name in _named(devices)}
    return any(name in used for devices in others for name in _named(devices))


def _check_modal_actor(config: RunConfig) -> None:
    modal, mode = config.compute.modal, config.compute.mode
    key, wanted, used = "actor", modal.actor, 1
    if mode == "single_node":
        key, wanted, used = "gpu", modal.gpu, 2 if modal.vllm_mode == "server" else 1
    if gpu_count(wanted) > used:
        fits = wanted.partition(":")[0] + (f":{used}" if used > 1 else "")
        raise ConfigError(
            f"compute.modal.{key} = {wanted!r}: the actor trains on one GPU"
            f"{', and the rollout worker samples on one' if used > 1 else ''}; the others would be "
            f"paid for and do nothing. Write {fits!r}"
        )


def _check_sleep(config: RunConfig) -> None:
    """Raise `ConfigError` unless the actor shares a GPU whose memory rollout workers can free while
    they sleep."""
    place = config.compute.local
    why = None
    if not has_gpu():
        why = "this machine has no GPU, and vLLM on a CPU cannot sleep"
    elif not _overlap(place.actor.devices, place.rollout.devices):
        why = "the rollout workers have GPUs of their own (compute.local.rollout.devices)"
    if why is not None:
        raise ConfigError(f"rollout.sleep_while_training = true: {why}; leave it out")


def _named(devices: str) -> list[str]:
    return [name.strip() for name in devices.split(",") if name.strip() not in NONE]


def _check_role(config: RunConfig, role: Literal["actor", "rollout"]) -> None:
    place = getattr(config.compute.local, role)
    for devices in dict.fromkeys(place.devices):
        wanted = _named(devices)
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
