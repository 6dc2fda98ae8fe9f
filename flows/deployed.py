"""The flow run of a deployment: how it ends, when it is skipped, and what it does while another
process drives its run.

Runs of a deployment wait for each other, and after a long night, or some nights without power, all
of them would be run one after the other. Those that would begin too late are skipped.

The server starts a deployment's flow run again when it believes that the process has died. The old
process may be about to end, or gone with its machine, or alive and only cut off from the server.
"""

import asyncio
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from prefect import State
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.context import FlowRunContext
from prefect.exceptions import Abort
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed, Crashed, Suspended
from prefect.utilities.urls import url_for

from mortal_steps.errors import DiskError, StoreError, TransientError
from mortal_steps.runs.lease import LEASE_TTL_S, RENEW_EVERY_S, is_driven, read_lease
from mortal_steps.runs.run import find_run
from mortal_steps.store import RunStore
from mortal_steps.store.identity import IDENTITY_FILE
from mortal_steps.system.disks import is_disk_error
from mortal_tasks.segments import RUN_TAG
from mortal_tasks.server_watch import best_effort

PATIENCE_S = LEASE_TTL_S + RENEW_EVERY_S
"""The time after which the lease of a vanished machine counts as stale."""
VARIABLE = "MORTAL_IN_DEPLOYMENT"
"""Set in the process of a stage whose recipe a deployment has begun."""
LOOK_EVERY_S = 1.0
"""Seconds between two looks at the other process's lease."""


def state_for(ended: Exception) -> State[Any]:
    """Return the state `Crashed`, if a lost worker, an outage or the disk has ended a deployment's
    flow run.

    `mortal automate` starts crashed flow runs again. A plain `OSError` counts as well, because
    Prefect keeps files on that disk, too. Raises any other error, which makes the flow run Failed.
    """
    if not (is_of_the_machine(ended) and is_deployed()):
        raise ended
    get_run_logger().error("%s", ended)
    return Crashed(message=str(ended))


def is_of_the_machine(error: Exception) -> bool:
    """Return whether a lost worker, an outage or the disk is the reason, so that the same may
    succeed when it is tried again."""
    of_machine = (TransientError, DiskError, httpx.HTTPError)
    return isinstance(error, of_machine) or is_disk_error(error)


async def stay_suspended() -> None:
    """Let this flow run wait for Resume however long that takes. The button *Pause* of Prefect's
    page suspends it for five minutes, after which *Resume* would make it Failed."""
    suspended: State[Any] = Suspended(message="Resume continues it at its last step.")
    async with get_client() as client:
        setting = client.set_flow_run_state(UUID(flow_run.id), suspended, force=True)
        await best_effort(setting, "Resume makes this flow run Failed after some minutes; Retry it")


def ended_already(state: State[Any]) -> Abort:
    """To be raised in a flow whose end the server knows, or is not to be told."""
    ended = Abort(state.message)
    ended.state = state  # type: ignore[attr-defined]  # what the engine says of the end
    return ended


async def end_over_cancellation(completed: State[Any]) -> None:
    """Let this flow run end as `completed` although somebody cancels it: its run was complete
    before it could stop. Prefect's server takes no other end than Cancelled from a run that it
    cancels, and its engine would raise an error about that."""
    run_id = UUID(flow_run.id)
    async with get_client() as client:
        found = await best_effort(client.read_flow_run(run_id), "the end is told as it is")
        state = None if found is None else found.state
        if state is None or state.type not in (StateType.CANCELLING, StateType.CANCELLED):
            return
        told: State[Any] = Completed(message=completed.message)
        setting = client.set_flow_run_state(run_id, told, force=True)
        await best_effort(setting, "the flow run stays Cancelled; its run is complete")
    raise ended_already(completed)


def is_deployed() -> bool:
    """Return whether a deployment made this flow run, or that of the recipe which this one is a
    stage of. This does not use `prefect.runtime`, which would ask the server; the server may be
    away."""
    if VARIABLE in os.environ:
        return True
    context = FlowRunContext.get()
    return context is not None and getattr(context.flow_run, "deployment_id", None) is not None


def too_late(skip_after_min: float | None) -> State[Any] | None:
    """Return the last state of this flow run, which says why it is skipped; None unless a schedule
    made it and it begins too late."""
    context = FlowRunContext.get()
    if skip_after_min is None or context is None or not isinstance(context.flow_run, FlowRun):
        return None
    skipped = why_skipped(context.flow_run, skip_after_min, datetime.now(UTC))
    return None if skipped is None else Cancelled(message=skipped)


def why_skipped(flow_run: FlowRun, skip_after_min: float, now: datetime) -> str | None:
    """Return the reason as a sentence; None if it is in time, begun before, or a person's."""
    due = flow_run.expected_start_time
    if due is None or not is_first_try(flow_run):
        return None
    late_min = (now - due).total_seconds() / 60
    if late_min <= skip_after_min:
        return None
    return (
        f"skipped: due at {due:%Y-%m-%d %H:%M} UTC, it could only begin {late_min:.0f} minutes "
        f"later; skip_after_min = {skip_after_min:g}"
    )


def is_first_try(flow_run: FlowRun) -> bool:
    """Return whether a schedule made this flow run, and it has not run before."""
    return flow_run.auto_scheduled and flow_run.run_count <= 1


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
    if drives(find_run(runs_dir, run_id).manifest.ui_url, flow_run.id):
        say("it is alive; this flow run is left to it")
        raise Abort
    elsewhere = f"skipped: run {run_id} is in use by another process, which goes on with it"
    say(elsewhere)
    return Cancelled(message=elsewhere)


async def wait_for_holder(store: RunStore, patience_s: float, say: Callable[[str], None]) -> bool:
    """Wait until no process drives the run, at most `patience_s`; returns whether that is so."""
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


def drives(ui_url: str | None, flow_run_id: str) -> bool:
    """Return whether this flow run's page is the run's, by whatever address the server is known."""
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
