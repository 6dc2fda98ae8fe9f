"""A run's notices as Prefect events, which `mortal automate --notify` forwards to people.

Prefect's client keeps the events that it cannot send at once. Each has the id of its notice, so the
server recognises one that it gets twice.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from prefect.events import emit_event

from mortal_steps.runs.notices import Notice, mark_sent, unsent
from mortal_steps.runs.run import Run

RESOURCE = "mortal.run"
LEVEL = "mortal.level"
"""Label on the resource of every event; automations select events by it."""


def emit_notices(run: Run) -> None:
    """Send the notices that are noted and not sent yet as events of this flow run."""
    sent = [notice for notice in unsent(run.store) if _emit(run, notice)]
    if sent:
        mark_sent(run.store, sent)


def _emit(run: Run, notice: Notice) -> bool:
    """Return whether the event is on its way; it is not while the server does not know the flow
    run."""
    event = emit_event(
        event=notice.event,
        id=UUID(notice.id),
        occurred=datetime.fromtimestamp(notice.at, UTC),
        resource={
            "prefect.resource.id": f"{RESOURCE}.{run.info.run_id}",
            "prefect.resource.name": run.info.run_id,
            LEVEL: notice.level,
        },
        payload=payload(run, notice),
    )
    return event is not None


def payload(run: Run, notice: Notice) -> dict[str, Any]:
    """Return the payload of a notice's event; `subject` and `body` are for people."""
    at = f"step {notice.step} of {run.info.num_steps}"
    advice = f"What to do: {notice.advice}." if notice.advice else ""
    parts = [f"{run.info.run_id}, {at}: {notice.text}.", advice, run.manifest.ui_url or ""]
    return {
        "run_id": run.info.run_id,
        "run_dir": str(run.store.root.absolute()),
        "level": notice.level,
        "step": notice.step,
        "num_steps": run.info.num_steps,
        "value": notice.value,
        "text": notice.text,
        "advice": notice.advice,
        "url": run.manifest.ui_url,
        "subject": f"{run.info.run_id}: {notice.title} ({at})",
        "body": "\n\n".join(part for part in parts if part),
    }
