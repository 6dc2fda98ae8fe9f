"""A run on its way to a container that drives it: what it needs goes to the Volume."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import modal

from mortal_steps.compute.modal.asking import patiently
from mortal_steps.compute.modal.host import Settings
from mortal_steps.compute.modal.mirror import Mirror
from mortal_steps.compute.modal.models import folder_there, share_model
from mortal_steps.compute.modal.runs import runs_volume
from mortal_steps.config import RunConfig
from mortal_steps.run import Run

PROJECT = "project"
"""Folder of a run directory with the files of its reward functions."""
PASSED_ON = ("PREFECT_API_URL", "PREFECT_API_KEY")
"""Without a server that the container can reach, it runs one of its own."""


def settings_of(run: Run) -> Settings:
    """What the run's workers are constructed with."""
    return Settings(
        config=run.config,
        dataset_fingerprint=run.info.dataset_fingerprint,
        num_steps=run.info.num_steps,
        model_folder=folder_there(run.info.model_files),
    )


async def hand_over(run: Run) -> None:
    """Bring the run to the Volume, with its model folder and the files of its reward functions."""
    volume = runs_volume(run.config)
    await share_model(volume, settings_of(run))
    await Mirror(volume, run.store).begin()
    here = Path.cwd()
    files = {path.relative_to(here): path for path in _reward_files(run.config, here)}
    if files:
        folder = f"{run.info.run_id}/{PROJECT}"
        await volume.upload({f"{folder}/{name}": path for name, path in files.items()})


async def fetch_project(config: RunConfig) -> None:
    """Bring the files of the reward functions into the current folder."""
    volume, folder = runs_volume(config), f"{config.run_id}/{PROJECT}"
    for path in await volume.files(folder):
        await volume.download(path, Path(path).relative_to(folder))


async def spawn_orchestrator(config: RunConfig) -> str:
    """Let the deployed app drive the run; Modal's id of that call."""
    options = config.compute.modal
    deployed = modal.Function.from_name(options.app, "orchestrate", version=options.version)
    orchestrate = for_run(deployed, config)
    call = await patiently("orchestrate", lambda: orchestrate.spawn.aio(config))
    return str(call.object_id)


def for_run(orchestrate: Any, config: RunConfig) -> Any:
    """The orchestrator's function, told where the Prefect server is, with the run's secrets."""
    passed_on = {name: os.environ[name] for name in PASSED_ON if os.environ.get(name)}
    secrets = [modal.Secret.from_name(name) for name in config.compute.modal.secrets]
    return orchestrate.with_options(env=passed_on, secrets=secrets)


def _reward_files(config: RunConfig, here: Path) -> Iterator[Path]:
    """Python files of this folder that the reward functions are in, or may import: the modules
    beside a file, the whole package of a module."""
    for spec in config.rewards.functions:
        place = spec.rpartition(":")[0]
        package = here / place.partition(".")[0]
        if place.endswith(".py"):
            yield from (here / place).resolve().parent.glob("*.py")
        elif package.is_dir():
            yield from package.rglob("*.py")
        else:
            yield from here.glob(f"{place}.py")
