"""In which order the server shows events to its automations.

Prefect shows an event after the one that it follows: Crashed after Running, where less than five
minutes lie between them. An event whose forerunner never comes waits for a quarter of an hour, and
all that follow it wait too. That happens whenever

- the server was started again in between, for it remembers in memory alone what it has shown: a run
  and its server that lose their power together;
- a schedule made the flow run less than five minutes before, for of its first state there is never
  an event;
- SQLite was busy, and Prefect has dropped the forerunner.

Here it waits for `WAIT`, which is longer than one process takes to show an event, or to show it for
the fourth time. The setting PREFECT_SERVER_EVENTS_CAUSAL_ORDERING names this module.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from prefect.server.events.ordering import memory
from prefect.server.events.schemas.events import ReceivedEvent

WAIT = timedelta(seconds=10)
GIVE_UP = timedelta(minutes=15)
"""An event that cannot be shown for so long never will."""


class CausalOrdering(memory.CausalOrdering):
    """Prefect's, with less patience."""

    async def wait_for_leader(self, event: ReceivedEvent) -> None:
        """Raise `EventArrivedEarly` for an event that is to wait."""
        if datetime.now(UTC) - event.received < WAIT:
            await super().wait_for_leader(event)

    async def get_lost_followers(self) -> list[ReceivedEvent]:
        """Those that have waited long enough, in the order in which they occurred; asked for every
        few seconds.

        Each stays on the list until it was shown (`preceding_event_confirmed` removes it then):
        where one fails, as with a busy SQLite, Prefect shows none of those behind it. What follows
        an event of the list is shown with it.
        """
        now = datetime.now(UTC)
        async with self._lock:
            waiting = dict(self._events)
        lost = [
            event
            for event in waiting.values()
            if now - event.received >= WAIT and event.follows not in waiting
        ]
        for event in lost:
            if now - event.received >= GIVE_UP:  # this is the last time
                await self.forget_follower(event)
        return sorted(lost, key=lambda event: event.occurred)
