"""Runs whose flow is in a container, too: the machine that began one may be switched off.

The run begins here, where its data and reward functions are: it is checked, its problems are read,
and all of it goes to the Volume. A container without a GPU then drives it, as any other machine
would, and another one goes on with it where that is taken away.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

import typer

import mortal_steps
from mortal.driver import drive
from mortal_steps.compute.modal import detached
from mortal_steps.compute.modal.project import fetch_project
from mortal_steps.compute.modal.volume_runs import runs_volume
from mortal_steps.config import RunConfig
from mortal_steps.errors import ConfigError, MortalError, TransientError
from mortal_steps.orchestration.opening import open_run
from mortal_steps.runs.manifest import RunManifest
from mortal_steps.runs.run import find_run


def detach(config: RunConfig) -> str:
    """Begin the run and let the deployed app drive it; Modal's id of that call.

    Raises what `open_run` does.
    """
    prepare(config)
    return asyncio.run(detached.spawn_orchestrator(config))


def prepare(config: RunConfig) -> None:
    """Begin the run here and bring it to the Volume.

    Raises `ConfigError` for what a container could not reach, and `StoreError` if the run is driven
    already.
    """
    if config.compute.backend != "modal":
        raise ConfigError("only a run on Modal can be detached; set compute.backend = 'modal'")
    detached.check_reachable(config)
    asyncio.run(detached.hand_over(open_run(config)))


def drive_here(config: RunConfig) -> str:
    """What the orchestrator's container does: drive the run to its end; how it ended.

    Only what another attempt may mend is raised, and `KeyboardInterrupt` where the container is
    taken away: Modal calls this again in another one then.
    """
    began = time.time()
    os.chdir(tempfile.mkdtemp())
    os.environ["PYTHONPATH"] = str(Path(mortal_steps.__file__).parents[1])  # for its processes
    asyncio.run(fetch_project(runs_volume(config), str(config.run_id)))
    try:
        drive(config.model_copy(update={"runs_dir": "runs"}), port=0, keep_server=False)
    except TransientError:
        raise
    except KeyboardInterrupt:
        ended = find_run(Path("runs"), str(config.run_id)).manifest
        if ended.updated_at < began or not _was_asked_to_stop(ended):
            raise
        return str(ended.error)
    except MortalError as error:
        typer.secho(f"error: {error}", err=True, fg="red")
        return str(error)
    return "completed"


def _was_asked_to_stop(ended: RunManifest) -> bool:
    """Whether the run was told to stop, by `mortal stop` or by its cost, and not this process."""
    why = ended.error or ""
    return why.startswith("stopped by ") and not why.startswith("stopped by SIG")
