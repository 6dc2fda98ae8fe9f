"""Scheduled flow runs that are too late, because their machine was busy with another run.

A deployment's own concurrency limit can cancel a late run at once. The limits of a work pool, a
worker or `mortal schedule` cannot: their flow runs wait, and after a long night all of them would
be run one after the other.
"""

from __future__ import annotations

from datetime import UTC, datetime

from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext


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
    if due is None or not flow_run.auto_scheduled or flow_run.run_count > 1:
        return None
    late_min = (now - due).total_seconds() / 60
    if late_min <= skip_after_min:
        return None
    return (
        f"skipped: due at {due:%Y-%m-%d %H:%M} UTC, it could only begin {late_min:.0f} minutes "
        f"later; skip_after_min = {skip_after_min:g}"
    )
