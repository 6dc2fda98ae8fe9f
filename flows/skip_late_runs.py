"""Scheduled flow runs that are too late, because their machine was busy with another run, or off.

A deployment's own concurrency limit can cancel a late run at once. The limits of a work pool, a
worker or `mortal schedule` cannot: their flow runs wait, and after a long night all of them would
be run one after the other. After a machine was off for some nights, all flow runs that it missed
come at once with the one that is due, and the first of them takes the deployment's slot.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from prefect import State
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.context import FlowRunContext
from prefect.logging import get_run_logger
from prefect.states import Cancelled, Scheduled

from mortal_flows.final_states import ended_already

LIMIT_REACHED = "Deployment concurrency limit reached"
"""How the message begins when Prefect cancels a flow run of a deployment with CANCEL_NEW."""
RETRIED = "AwaitingRetry"
"""Prefect's name for the state that a Retry sets."""
NEWEST = 50
"""The number of cancelled flow runs of the deployment that are searched."""


def missed_its_time(skip_after_min: float | None) -> str | None:
    """Why this flow run is skipped; None unless a schedule made it and it begins too late."""
    context = FlowRunContext.get()
    if skip_after_min is None or context is None or context.flow_run is None:
        return None
    return why_skipped(context.flow_run, skip_after_min, datetime.now(UTC))


def why_skipped(flow_run: FlowRun, skip_after_min: float, now: datetime) -> str | None:
    """The reason as a sentence. None if the flow run is in time, has begun before, or was started
    by a person."""
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
    """Whether a schedule made this flow run, and it has not run before."""
    return flow_run.auto_scheduled and flow_run.run_count <= 1


async def skip(missed: str) -> None:
    """Set this flow run to Cancelled, unless somebody has retried it. If a later run of its
    deployment was cancelled because this one had the slot, that one begins now.

    Raises Prefect's `Abort`, so that the engine leaves the state as it is.
    """
    context = FlowRunContext.get()
    assert context is not None and context.flow_run is not None
    cancelled: State[Any] = Cancelled(message=missed)
    async with get_client() as client:
        if was_retried(await client.read_flow_run_states(context.flow_run.id)):
            return
        kept_out = await give_place(client, context.flow_run, cancelled)
    if kept_out is not None:
        get_run_logger().warning("flow run %s begins in place of this one", kept_out.name)
    raise ended_already(cancelled)


def was_retried(states: Iterable[State[Any]]) -> bool:
    """Whether a flow run with these states was retried: one that the limit had cancelled, say."""
    return any(state.name == RETRIED for state in states)


async def give_place(client: PrefectClient, skipped: FlowRun, ended: State[Any]) -> FlowRun | None:
    """Set a flow run to the state `ended`, and schedule the flow run again that was cancelled
    because this one had the slot, if there is one. Returns that one."""
    await client.set_flow_run_state(skipped.id, ended)  # first: this frees the slot
    kept_out = await _kept_out_by(client, skipped)
    if kept_out is not None:
        again: State[Any] = Scheduled(message="The run that had its place came too late.")
        await client.set_flow_run_state(kept_out.id, again, force=True)
    return kept_out


async def _kept_out_by(client: PrefectClient, skipped: FlowRun) -> FlowRun | None:
    """The newest flow run of the deployment that was cancelled because this one had the slot, and
    that is still in time."""
    deployment = DeploymentFilterId(any_=[skipped.deployment_id])
    cancelled = FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.CANCELLED]))
    found = await client.read_flow_runs(
        deployment_filter=DeploymentFilter(id=deployment),
        flow_run_filter=FlowRunFilter(state=cancelled),
        sort=FlowRunSort.EXPECTED_START_TIME_DESC,
        limit=NEWEST,
    )
    states = await client.read_flow_run_states(skipped.id)
    now = datetime.now(UTC)
    pending = (state.timestamp for state in states if state.type == StateType.PENDING)
    return newest_kept_out(found, since=min(pending, default=now), now=now)


def newest_kept_out(cancelled: Iterable[FlowRun], since: datetime, now: datetime) -> FlowRun | None:
    """The first of these that a schedule made, that the limit cancelled after `since` and before it
    began, and that is not too late itself."""
    for flow_run in cancelled:
        state, skip_after_min = flow_run.state, flow_run.parameters.get("skip_after_min")
        if (
            state is not None
            and state.timestamp >= since
            and (state.message or "").startswith(LIMIT_REACHED)
            and flow_run.auto_scheduled
            and flow_run.run_count == 0
            and (skip_after_min is None or why_skipped(flow_run, skip_after_min, now) is None)
        ):
            return flow_run
    return None
