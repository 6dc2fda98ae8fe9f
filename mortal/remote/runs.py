"""The `mortal` command's view of runs on a Modal Volume."""

import asyncio
import dataclasses
import logging
import tempfile
from pathlib import Path

from mortal_steps.errors import CorruptFileError, RunNotFoundError
from mortal_steps.places.modal.files import volume_runs
from mortal_steps.places.modal.files.volume import RunsVolume
from mortal_steps.report.status import RunStatus, status_of
from mortal_steps.report.summary import RunSummary, summarize
from mortal_steps.runs.ending import FILE as ENDING
from mortal_steps.runs.logs import METRICS
from mortal_steps.runs.manifest import MANIFEST_FILE
from mortal_steps.runs.run import find_run

OF_STATUS = (MANIFEST_FILE, ENDING, METRICS)
"""Files of a run from which its status is made."""

logger = logging.getLogger(__name__)


def remote_summary(volume: str, run_id: str) -> RunSummary:
    """Return the summary of a run; its paths are those on the Volume."""
    with tempfile.TemporaryDirectory() as folder:
        run = asyncio.run(volume_runs.look_at(RunsVolume(volume), run_id, Path(folder)))
        summary, final = summarize(run), run.manifest.final
    where = f"{volume}:/{run_id}"
    model = f"{where}/{final.path}" if final else None
    return dataclasses.replace(summary, run_dir=where, model_path=model)


def remote_status(volume: str, run_id: str) -> RunStatus:
    with tempfile.TemporaryDirectory() as folder:
        looking = volume_runs.look_at(RunsVolume(volume), run_id, Path(folder), OF_STATUS)
        return status_of(asyncio.run(looking), volume)


def remote_statuses(volume: str) -> list[RunStatus]:
    """Return the status of every run on the Volume; one that is not whole is warned of."""
    found = []
    for run_id in asyncio.run(volume_runs.list_run_ids(RunsVolume(volume))):
        try:
            found.append(remote_status(volume, run_id))
        except (RunNotFoundError, CorruptFileError) as error:
            logger.warning("%s", error)
    return found


def fetch_run(volume: str, run_id: str, runs_dir: Path, *, everything: bool) -> str:
    """Download a run's model, or all of the run. Returns a sentence that says where it is."""
    root = asyncio.run(
        volume_runs.fetch(RunsVolume(volume), run_id, runs_dir, everything=everything)
    )
    run = find_run(runs_dir, run_id)
    done = f"step {run.manifest.step} of {run.num_steps}"
    model = "" if run.manifest.final else f", without a final model: it is at {done}"
    return f"{run_id} is in {root.absolute()}{model}"
