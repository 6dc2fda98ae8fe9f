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
DUE = ("Late", "AwaitingRetry")
"""States of flow runs that are due and that nobody has asked for. Prefect says Late after 15 s, but
not of a run that comes back."""


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
        late = {each["deployment_id"] for each in found if each["state"]["name"] in DUE}
        reasons = {each: why_late(client, each) for each in late if each is not None}
    now = datetime.now(UTC)
    return [_cells(flow_run, reasons, now) for flow_run in found]


def _cells(
    flow_run: dict[str, Any], reasons: Mapping[str, str | None], now: datetime
) -> tuple[str, str, str, str]:
    state = flow_run["state"]
    message = (state.get("message") or "").partition("\n")[0]
    since = datetime.fromisoformat(state["timestamp"].replace("Z", "+00:00"))
    when = duration((now - since).total_seconds())
    if state["type"] == "SCHEDULED" and flow_run["expected_start_time"]:
        begins = datetime.fromisoformat(flow_run["expected_start_time"].replace("Z", "+00:00"))
        left = (begins - now).total_seconds()
        when = f"in {duration(left)}" if left > 0 else f"{duration(-left)} late"
        if left <= 0 and state["name"] in DUE:
            message = reasons.get(flow_run["deployment_id"]) or "waits for its turn"
    return printable(flow_run["name"]), state["name"], when, printable(message)
