"""A run that a container on Modal drives, seen from this machine.

Modal's client is called in a thread, because a notebook runs an event loop in the main thread.
"""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mortal_steps.errors import RunNotFoundError
from mortal_steps.report.status import RunStatus, status_of
from mortal_steps.runs.run import Run


def may_be_elsewhere(run: Run) -> bool:
    """Return whether the Volume on Modal may hold news of the run that its directory here does
    not."""
    on_modal = run.config.compute.backend == "modal"
    return on_modal and run.status() != "running" and not run.is_complete()


def look(run: Run) -> RunStatus:
    """Return the state of the run on the Volume, or the state here if it is not on the Volume."""
    from mortal.remote.runs import OF_STATUS  # a local run needs no client of Modal's
    from mortal_steps.compute.modal.retry import run_in_thread
    from mortal_steps.compute.modal.volume import RunsVolume
    from mortal_steps.compute.modal.volume_runs import look_at

    volume = RunsVolume(run.config.compute.modal.volume)
    with tempfile.TemporaryDirectory() as folder:
        try:
            there = run_in_thread(look_at(volume, run.info.run_id, Path(folder), OF_STATUS))
        except RunNotFoundError:
            return status_of(run)
        return status_of(there, volume.name)


def download_run(run: Run) -> None:
    """Copy the run's records from the Volume, and the final model if the run has ended."""
    from mortal_steps.compute.modal import volume_runs
    from mortal_steps.compute.modal.retry import run_in_thread
    from mortal_steps.compute.modal.volume import RunsVolume

    run_in_thread(volume_runs.download_run(RunsVolume(run.config.compute.modal.volume), run.store))


def stop(run: Run, timeout_s: float) -> None:
    """Stop the run on Modal. Waits `timeout_s` seconds at most, and raises the errors of
    `stop_remote`."""
    from mortal.stopping import stop_remote

    with ThreadPoolExecutor(max_workers=1) as thread:
        volume = run.config.compute.modal.volume
        thread.submit(stop_remote, volume, run.info.run_id, timeout_s).result()
