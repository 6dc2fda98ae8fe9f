"""The flow of a detached run, in a container on Modal without a GPU.

It drives the run as any other machine would, and another container goes on with it where this one
is taken away.
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
from mortal_steps.compute.modal.detached import fetch_reward_models
from mortal_steps.compute.modal.project import fetch_project
from mortal_steps.compute.modal.volume import RunsVolume
from mortal_steps.config import RunConfig
from mortal_steps.errors import MortalError, TransientError
from mortal_steps.runs.manifest import RunManifest
from mortal_steps.runs.run import find_run


def drive_in_container(config: RunConfig) -> str:
    """Drive the run to its end in the orchestrator's container; return how it ended.

    Only what another attempt may mend is raised, and `KeyboardInterrupt` where the container is
    taken away: Modal calls this again in another one then.
    """
    began = time.time()
    os.chdir(tempfile.mkdtemp())
    os.environ["PYTHONPATH"] = str(Path(mortal_steps.__file__).parents[1])  # for its processes
    run_id = str(config.run_id)
    asyncio.run(fetch_project(RunsVolume(config.compute.modal.volume), run_id))
    asyncio.run(fetch_reward_models(config, Path("runs") / run_id))
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
    """Return whether the run was told to stop, by `mortal stop` or by its cost, and not this
    process."""
    why = ended.error or ""
    return why.startswith("stopped by ") and not why.startswith("stopped by SIG")
