"""Detached runs: a container on Modal without a GPU drives them.

The run begins on this machine, where its data and its reward functions are: it is checked here, its
problems are read, and everything is copied to the Volume. Then this machine may be switched off.
The container drives the run as any other machine would, and another container goes on with it where
this one is taken away.
"""

import asyncio
import os
import tempfile
import time
from pathlib import Path

import typer

import mortal_steps
from mortal.terminal.output import say
from mortal_steps.errors import ConfigError, MortalError, TransientError
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.places.modal.deployed import check_pickles
from mortal_steps.places.modal.detached import (
    check_reachable,
    deployed_orchestrator,
    fetch_reward_models,
    hand_over,
)
from mortal_steps.places.modal.files.project import fetch_project
from mortal_steps.places.modal.files.volume import RunsVolume
from mortal_steps.places.modal.retry import call_with_retries
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.runs.manifest import RunManifest
from mortal_steps.runs.run import find_run


def detach(config: RunConfig) -> str:
    """Begin the run and have the deployed app drive it; returns Modal's id of the call. Raises what
    `prepare` raises, and `ComputeError` if the app cannot be used."""
    prepare(config)
    orchestrate = deployed_orchestrator(config.compute.modal)
    spawned = call_with_retries("orchestrate", lambda: orchestrate.spawn.aio(config))
    return str(asyncio.run(spawned).object_id)


def prepare(config: RunConfig) -> None:
    """Begin the run here and copy it to the Volume. Raises `ConfigError` for what a container
    cannot reach, `StoreError` if the run is driven, and what `open_run` raises."""
    if config.compute.volume is None:
        raise ConfigError("only a run on Modal can be detached; set compute.backend = 'modal'")
    plan = Plan(config).place
    check_reachable(plan)
    asyncio.run(check_pickles(plan))
    asyncio.run(hand_over(open_run(config, tell=say)))


def drive_in_container(config: RunConfig) -> str:
    """Drive the run to its end in the orchestrator's container; return how it ended. Raises only
    what another attempt may mend, and `KeyboardInterrupt` where the container is taken away."""
    from mortal.driver import drive  # Prefect, which whoever detaches a run does not need

    began = time.time()
    os.chdir(tempfile.mkdtemp())
    os.environ["PYTHONPATH"] = str(Path(mortal_steps.__file__).parents[1])  # for its processes
    run_id = str(config.run_id)
    asyncio.run(fetch_project(RunsVolume(config.compute.modal.volume), run_id))
    asyncio.run(fetch_reward_models(Plan(config).code, Path("runs") / run_id))
    try:
        drive(config.model_copy(update={"runs_dir": "runs"}))
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
    """Return whether the run was told to stop (`mortal stop`, its cost), not this process."""
    why = ended.error or ""
    return why.startswith("stopped by ") and not why.startswith("stopped by SIG")
