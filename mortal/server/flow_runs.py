"""The unfinished flow runs of a Prefect server: those that run, wait for their turn, or will be
restarted after a crash."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from mortal.server.api import client_of
from mortal.server.files import Server
from mortal.server.obstacles import why_late
from mortal.server.recovery import COMING_BACK, FLOWS
from mortal_steps.report.printable import printable
from mortal_steps.report.units import duration

UNFINISHED = ("RUNNING", "SCHEDULED", "PENDING", "PAUSED", "CANCELLING")
MOST_SHOWN = 50
LATE = "Late"
"""Prefect's name for the state of a flow run that has been due for 15 s and that nobody has asked
for."""


def unfinished(server: Server) -> list[tuple[str, str, str, str]]:
    """The unfinished flow runs, sorted by their expected start, at most `MOST_SHOWN`.

    Of each: its name, its state, how long it has been in that state or when it starts, and the
    state's message.
    """
    wanted = {
        "flows": {"name": {"any_": list(FLOWS)}},  # segments are not listed
        "flow_runs": {
            "state": {
                "operator": "or_",
                "type": {"any_": list(UNFINISHED)},
                "name": {"any_": list(COMING_BACK)},
            }
        },
        "sort": "EXPECTED_START_TIME_ASC",
        "limit": MOST_SHOWN,
    }
    with client_of(server.api_url) as client:
        found = client.request("POST", "/flow_runs/filter", json=wanted).json()
        late = {each["deployment_id"] for each in found if each["state"]["name"] == LATE}
        reasons = {each: why_late(client, each) for each in late if each is not None}
    now = datetime.now(UTC)
    return [_cells(flow_run, reasons, now) for flow_run in found]


def _cells(
    flow_run: dict[str, Any], reasons: Mapping[str, str | None], now: datetime
) -> tuple[str, str, str, str]:
    state = flow_run["state"]
    message = (state.get("message") or "").partition("\n")[0]
    if state["name"] == LATE:
        message = reasons.get(flow_run["deployment_id"]) or message
    since = datetime.fromisoformat(state["timestamp"].replace("Z", "+00:00"))
    when = duration((now - since).total_seconds())
    if state["type"] == "SCHEDULED" and flow_run["expected_start_time"]:
        begins = datetime.fromisoformat(flow_run["expected_start_time"].replace("Z", "+00:00"))
        left = (begins - now).total_seconds()
        when = f"in {duration(left)}" if left > 0 else f"{duration(-left)} late"
    return printable(flow_run["name"]), state["name"], when, printable(message)
