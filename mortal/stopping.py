"""`mortal stop`: end a run in order, and say when it has ended.

The process that drives the run is told: by SIGINT if it is one of this machine, and through its
lease if the run is on Modal, wherever its flow is.
"""

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import typer

from mortal_steps.errors import StoreError, TransientError
from mortal_steps.report.status import RunStatus, status_of
from mortal_steps.runs.argument import run_argument
from mortal_steps.runs.lease import LeaseRecord, read_lease
from mortal_steps.runs.run import Run, find_run

LOOK_EVERY_S = 0.5
TELL_EVERY_S = 15.0


def stop_local(runs_dir: Path, run_id: str, patience_s: float) -> RunStatus:
    """Stop a run that a process of this machine drives. Raises `StoreError` if none does, and
    `TransientError` if it has not ended in `patience_s`."""
    run = find_run(runs_dir, run_id)
    driver = _driver_here(run)
    try:
        os.kill(driver.pid, signal.SIGINT)
    except PermissionError as error:
        raise StoreError(f"process {driver.pid}, which drives run {run_id}: {error}") from error
    _wait_for_end(run_argument(run.store.root), driver, lambda: read_lease(run.store), patience_s)
    return status_of(find_run(runs_dir, run_id))


def stop_recipe(runs_dir: Path, name: str, patience_s: float) -> str:
    """Stop a recipe that a process of this machine drives; return its status then. Raises as
    `stop_local`."""
    # Imported where used: to stop a run needs none of it.
    from mortal_steps.recipes.record import find_recipe

    folder = find_recipe(runs_dir, name)
    driver = read_lease(folder.store)
    if driver is None or not driver.holds() or not driver.is_here():
        raise StoreError(f"no process of this machine drives recipe {name}; nothing to stop")
    try:
        os.kill(driver.pid, signal.SIGINT)
    except PermissionError as error:
        raise StoreError(f"process {driver.pid}, which drives recipe {name}: {error}") from error
    named = run_argument(runs_dir / name)
    _wait_for_end(named, driver, lambda: read_lease(folder.store), patience_s)
    record = folder.read()
    return record.status if record else "stopped"


def stop_remote(volume: str, run_id: str, patience_s: float) -> RunStatus:
    """Stop a run on Modal; raises as `stop_local` does."""
    from mortal.remote.runs import remote_status
    from mortal_steps.places.modal.files.volume import RunsVolume
    from mortal_steps.places.modal.files.volume_lease import ask_to_stop, find_lease

    remote_status(volume, run_id)  # there is such a run
    who = f"`mortal stop` on {socket.gethostname()}"
    driver = asyncio.run(ask_to_stop(RunsVolume(volume), run_id, who))

    def look() -> LeaseRecord | None:
        return asyncio.run(find_lease(RunsVolume(volume), run_id))

    _wait_for_end(f"{run_id} --volume {volume}", driver, look, patience_s)
    return remote_status(volume, run_id)


def _driver_here(run: Run) -> LeaseRecord:
    driver, run_id = read_lease(run.store), run.info.run_id
    if driver is None or not driver.holds():
        compute = run.config.compute
        there = f"; on Modal: `mortal stop {run_id} --volume {compute.volume}`"
        raise StoreError(
            f"no process drives run {run_id} in {run.store.root.parent} ({run.status()}, step "
            f"{run.manifest.step} of {run.num_steps}); there is nothing to stop"
            + (there if compute.volume else "")
        )
    if not driver.is_here():
        raise StoreError(
            f"run {run_id} is driven by process {driver.pid} on {driver.host}; call `mortal stop "
            f"{run_argument(run.store.root)}` on that machine"
        )
    return driver


def _wait_for_end(
    named: str, driver: LeaseRecord, look: Callable[[], LeaseRecord | None], patience_s: float
) -> None:
    """Wait for the end of a run or a recipe, which commands know by what it is `named`."""
    who, run_id = f"process {driver.pid} on {driver.host}", named.partition(" ")[0]
    typer.echo(
        f"asked {who} to stop; it is saving the state of run {run_id} and ending its workers"
    )
    began = reported = time.monotonic()
    while True:
        now, holder = time.monotonic(), look()
        if holder is None or holder.token != driver.token or not holder.holds():
            return
        if now - began > patience_s:
            raise TransientError(
                f"{who} still drives run {run_id} after {patience_s:.0f} s; it has been asked to "
                f"stop and will do so after its current step (see `mortal show {named}`)"
            )
        if now - reported > TELL_EVERY_S:
            typer.echo(f"still waiting after {now - began:.0f} s")
            reported = now
        time.sleep(LOOK_EVERY_S)
