"""A run's notices as Prefect events, which `mortal automate --notify` forwards to people.

They are sent by a request and not by Prefect's worker thread, because only a request shows whether
the server has accepted them. Notices that it has not accepted are sent again, if necessary by the
next process of the run. Each event has the id of its notice, so the server recognises one that it
gets twice.
"""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from prefect.client.orchestration import PrefectClient, get_client
from prefect.events import Event
from prefect.events.related import related_resources_from_run_context

from mortal_steps.runs.notices import Notice, mark_sent, unsent
from mortal_steps.runs.run import Run
from mortal_tasks.server_watch import ServerWatch, best_effort

RETRY_S = 30.0
"""Seconds between two attempts to send what the server has not accepted."""
RESOURCE = "mortal.run"
CLOSING_RETRY_S = 5.0
"""The same once the run has ended."""
LEVEL = "mortal.level"
"""Label on the resource of every event; automations select events by it."""


class NoticeEvents:
    """Sends the notices of one run as events that are related to this flow run."""

    def __init__(self, run: Run, server: ServerWatch) -> None:
        self._run = run
        self._server = server
        self._sending: asyncio.Task[bool] | None = None
        self._again_at: float | None = None
        """When to try once more, on the monotonic clock; None where nothing is left."""

    def tell(self) -> None:
        """Begin to send the notices that are noted and not sent yet."""
        self._again_at = 0.0
        self.try_again()

    def try_again(self) -> None:
        """Send the remaining notices if a new attempt is due; otherwise do nothing."""
        busy = self._sending is not None and not self._sending.done()
        if self._again_at is None or busy or time.monotonic() < self._again_at:
            return
        if not self._server.away:
            self._sending = asyncio.create_task(self._send())

    async def close(self, patience_s: float = 0.0) -> None:
        """Return once all notices are sent, or after so long without success: 0 is one attempt."""
        if self._sending is not None:
            await self._sending
        give_up_at = time.monotonic() + patience_s
        while self._server.away or not await self._send():
            if self._server.lost or time.monotonic() >= give_up_at:
                return
            await asyncio.sleep(CLOSING_RETRY_S)

    async def _send(self) -> bool:
        """Send what is not sent yet; returns whether the server has accepted it."""
        self._again_at = None  # unless there is more by the time that these are sent
        notices = unsent(self._run.store)
        if not notices:
            return True
        if await best_effort(self._post(notices), "a notice of the run is not sent yet"):
            mark_sent(self._run.store, notices)
            return True
        self._again_at = time.monotonic() + RETRY_S
        return False

    async def _post(self, notices: Sequence[Notice]) -> bool:
        async with get_client() as client:
            events = [await self._event(client, notice) for notice in notices]
            content = [event.model_dump(mode="json") for event in events]
            await client.request("POST", "/events", json=content)
        return True

    async def _event(self, client: PrefectClient, notice: Notice) -> Event:
        return Event(
            event=notice.event,
            id=UUID(notice.id),
            occurred=datetime.fromtimestamp(notice.at, UTC),
            resource={
                "prefect.resource.id": f"{RESOURCE}.{self._run.info.run_id}",
                "prefect.resource.name": self._run.info.run_id,
                LEVEL: notice.level,
            },
            related=await related_resources_from_run_context(client),
            payload=payload(self._run, notice),
        )


def payload(run: Run, notice: Notice) -> dict[str, Any]:
    """Return the payload of a notice's event; `subject` and `body` are for people."""
    at = f"step {notice.step} of {run.num_steps}"
    advice = f"What to do: {notice.advice}." if notice.advice else ""
    parts = [f"{run.info.run_id}, {at}: {notice.text}.", advice, run.manifest.ui_url or ""]
    return {
        "run_id": run.info.run_id,
        "run_dir": str(run.store.root.absolute()),
        "level": notice.level,
        "step": notice.step,
        "num_steps": run.num_steps,
        "value": notice.value,
        "text": notice.text,
        "advice": notice.advice,
        "url": run.manifest.ui_url,
        "subject": f"{run.info.run_id}: {notice.title} ({at})",
        "body": "\n\n".join(part for part in parts if part),
    }
