"""What is deployed on Modal, and whether a run can use it. Starts no GPU."""

from __future__ import annotations

from typing import Any

import modal

from mortal_steps.compute.base import Role
from mortal_steps.compute.modal.asking import patiently
from mortal_steps.compute.modal.release import Release, other_release, this_release
from mortal_steps.compute.modal.volume import RunsVolume
from mortal_steps.config import RunConfig
from mortal_steps.config.gpus import modal_gpu
from mortal_steps.errors import ComputeError

ANSWERS_WITHIN_S = 600
"""A container without a GPU, its image to be pulled first."""


def worker_of(config: RunConfig, role: Role, run_id: str, number: int) -> Any:
    """Handle of one worker: its class, on the GPU that the configuration names."""
    options = config.compute.modal
    deployed = modal.Cls.from_name(
        options.app, _class_of(role, config.rollout.engine), version=options.version
    )
    chosen = deployed.with_options(
        gpu=modal_gpu(options.actor if role == "actor" else options.rollout),
        secrets=[modal.Secret.from_name(name) for name in options.secrets],
    )
    return chosen(run_id=run_id, number=number)


async def check_deployed(config: RunConfig) -> None:
    """Raise `ComputeError` unless a run can start: a token, the app, its Volume, the same code on
    both sides, the secrets that are asked for."""
    options = config.compute.modal
    await RunsVolume(options.volume).check()
    for name in options.secrets:
        await patiently(name, modal.Secret.from_name(name).hydrate.aio)
    deployed, here = await deployed_release(options.app, options.version), this_release()
    if not deployed.runs_with(here):
        raise ComputeError(other_release(deployed, here))


async def deployed_release(app: str, version: int | None) -> Release:
    """The code of the deployed app; raises `ComputeError`."""
    about = modal.Function.from_name(app, "about", version=version)
    call = await patiently(app, about.spawn.aio)
    try:
        release: Release = await call.get.aio(timeout=ANSWERS_WITHIN_S)
    except Exception as error:
        raise ComputeError(
            f"the app {app} on Modal does not answer: {type(error).__name__}: {error}; `mortal "
            "deploy` brings it there anew"
        ) from error
    return release


def _class_of(role: Role, engine: str) -> str:
    """The class of deployments/modal_app.py: each has the image of what it works with."""
    if role == "actor":
        return "ActorWorker"
    return "RolloutWorker" if engine == "vllm" else "TransformersRolloutWorker"
