"""Runs whose flow is in a container, too: the machine that began one may be switched off.

The run begins here, where its data and reward functions are: it is checked, its problems are read,
and all of it goes to the Volume. A container without a GPU then drives it, as any other machine
would, and another one goes on with it where that is taken away.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import modal
import typer

import mortal_steps
from mortal.driver import drive
from mortal_steps.compute.modal.asking import patiently
from mortal_steps.compute.modal.host import Settings
from mortal_steps.compute.modal.mirror import Mirror
from mortal_steps.compute.modal.models import folder_there, share_model
from mortal_steps.compute.modal.runs import runs_volume
from mortal_steps.config import RunConfig
from mortal_steps.errors import ConfigError, MortalError
from mortal_steps.run import Run, open_run

PROJECT = "project"
"""Folder of a run directory with the files of its reward functions."""
PASSED_ON = ("PREFECT_API_URL", "PREFECT_API_KEY")
"""Without a server that the container can reach, it runs one of its own."""


def detach(config: RunConfig) -> str:
    """Begin the run and let the deployed app drive it; Modal's id of that call.

    Raises what `open_run` does.
    """
    options = config.compute.modal
    orchestrate = modal.Function.from_name(options.app, "orchestrate", version=options.version)
    prepare(config)
    return asyncio.run(_spawn(with_environment(orchestrate, config), config))


def prepare(config: RunConfig) -> None:
    """Begin the run here and bring it to the Volume."""
    if config.compute.backend != "modal":
        raise ConfigError("only a run on Modal can be detached; set compute.backend = 'modal'")
    asyncio.run(_hand_over(open_run(config)))


def with_environment(orchestrate: Any, config: RunConfig) -> Any:
    """The orchestrator's function, told where the Prefect server is."""
    passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    secrets = [modal.Secret.from_name(name) for name in config.compute.modal.secrets]
    return orchestrate.with_options(env=passed_on, secrets=secrets)


def drive_here(config: RunConfig) -> str:
    """What the orchestrator's container does: drive the run to its end; how it ended.

    Only what another attempt may mend is raised.
    """
    os.chdir(tempfile.mkdtemp())
    os.environ["PYTHONPATH"] = str(Path(mortal_steps.__file__).parents[1])  # for its processes
    asyncio.run(_fetch_project(config))
    try:
        drive(config.model_copy(update={"runs_dir": "runs"}), port=0, keep_server=False)
    except MortalError as error:
        typer.secho(f"error: {error}", err=True, fg="red")
        return str(error)
    return "completed"


async def _spawn(orchestrate: Any, config: RunConfig) -> str:
    call = await patiently("orchestrate", lambda: orchestrate.spawn.aio(config))
    return str(call.object_id)


async def _hand_over(run: Run) -> None:
    volume = runs_volume(run.config)
    settings = Settings(
        config=run.config,
        dataset_fingerprint=run.info.dataset_fingerprint,
        num_steps=run.info.num_steps,
        model_folder=folder_there(run.info.model_files),
    )
    await share_model(volume, settings)
    await Mirror(volume, run.store).begin()
    here = Path.cwd()
    files = {path.relative_to(here): path for path in _reward_files(run.config, here)}
    remote = {f"{run.info.run_id}/{PROJECT}/{name}": path for name, path in files.items()}
    if remote:
        await volume.upload(remote)


def _reward_files(config: RunConfig, here: Path) -> Iterator[Path]:
    """Python files of this folder that the reward functions are in, or may import: the modules
    beside a file, the whole package of a module."""
    for spec in config.rewards.functions:
        place = spec.rpartition(":")[0]
        if place.endswith(".py"):
            yield from (here / place).resolve().parent.glob("*.py")
        elif (here / place.partition(".")[0]).is_dir():
            yield from (here / place.partition(".")[0]).rglob("*.py")
        else:
            yield from here.glob(f"{place}.py")


async def _fetch_project(config: RunConfig) -> None:
    volume, folder = runs_volume(config), f"{config.run_id}/{PROJECT}"
    for path in await volume.files(folder):
        await volume.download(path, Path(path).relative_to(folder))
