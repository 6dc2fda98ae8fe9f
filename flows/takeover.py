"""A flow run that starts while another process still drives its run.

The server starts a deployment's flow run again when it believes that the process has died. The old
process may be about to end, or gone with its machine, or alive and only cut off from the server.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefect import State
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import Abort
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Cancelled
from prefect.utilities.urls import url_for

from mortal_steps.errors import StoreError
from mortal_steps.runs.lease import LEASE_TTL_S, RENEW_EVERY_S, is_driven, read_lease
from mortal_steps.runs.run import find_run
from mortal_steps.store import RunStore
from mortal_steps.store.identity import IDENTITY_FILE
from mortal_tasks.segments import RUN_TAG

PATIENCE_S = LEASE_TTL_S + RENEW_EVERY_S
"""The time after which the lease of a vanished machine counts as stale."""

LOOK_EVERY_S = 1.0
"""Seconds between two looks at the other process's lease."""


async def wait_for_driver(runs_dir: Path, run_id: str) -> State[Any] | None:
    """Wait up to `PATIENCE_S` for another process that drives the run to end, or to be known as
    dead.

    If it lives on and drives this very flow run, Prefect's `Abort` is raised: this process ends,
    and the flow run stays as it is. If it was started elsewhere, as by `mortal resume`, this
    returns the last state of the flow run, which has nothing to do.
    """
    say = get_run_logger().warning
    if await wait_for_holder(RunStore(runs_dir / run_id), PATIENCE_S, say):
        return None
    if _drives(find_run(runs_dir, run_id).manifest.ui_url, flow_run.id):
        say("it is alive; this flow run is left to it")
        raise Abort
    elsewhere = f"skipped: run {run_id} is in use by another process, which goes on with it"
    say(elsewhere)
    return Cancelled(message=elsewhere)


async def wait_for_holder(store: RunStore, patience_s: float, say: Callable[[str], None]) -> bool:
    """Wait up to `patience_s` seconds until no process drives the run; returns whether that is so.
    `say` is told which process it waits for."""
    deadline = time.monotonic() + patience_s
    holder = read_lease(store)
    if holder is not None and holder.holds():
        say(
            f"process {holder.pid} on {holder.host} drives run {store.root.name}, and renewed its "
            f"lease {holder.age_s():.0f} s ago; waiting up to {patience_s:.0f} s for it to end"
        )
    while is_driven(store):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(min(LOOK_EVERY_S, patience_s))
    return True


def _drives(ui_url: str | None, flow_run_id: str) -> bool:
    """Whether the page of a run's driver is that of this flow run, by whatever address its process
    knows the server."""
    return (ui_url or "").rstrip("/").endswith(f"/{flow_run_id}")


def check_begun_here(runs_dir: Path, run_id: str, begun: FlowRun) -> None:
    """Raise `StoreError` where a flow run comes back and its run is not there: it would begin again
    at step 0, on a disk that is not mounted or in the folder of another deployment."""
    named = f"{RUN_TAG}{run_id}" in begun.tags
    if begun.run_count > 1 and named and not (runs_dir / run_id / IDENTITY_FILE).exists():
        raise StoreError(
            f"this flow run began run {run_id}, which is not in {runs_dir.absolute()}: bring it "
            "back (is a disk not mounted? was the deployment made anew in another folder?) and "
            "retry this flow run, or start a new one"
        )


def flow_run_url() -> str | None:
    """Page of this flow run in the Prefect UI; the run's manifest names that of its driver."""
    return url_for("flow-run", obj_id=flow_run.id)
