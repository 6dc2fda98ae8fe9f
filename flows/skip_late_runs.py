"""Scheduled flow runs that are too late, because their machine was busy with another run, or off.

Runs of a deployment wait for each other, and after a long night, or some nights without power, all
of them would be run one after the other. Those that would begin too late are skipped.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from prefect import State
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext
from prefect.states import Cancelled


def too_late(skip_after_min: float | None) -> State[Any] | None:
    """Return the last state of this flow run, which says why it is skipped; None unless a schedule
    made it and it begins too late."""
    context = FlowRunContext.get()
    if skip_after_min is None or context is None or not isinstance(context.flow_run, FlowRun):
        return None
    skipped = why_skipped(context.flow_run, skip_after_min, datetime.now(UTC))
    return None if skipped is None else Cancelled(message=skipped)


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
