"""The order in which the server passes events to its automations.

Prefect passes on an event only after the event that it follows, for example Crashed after Running,
if less than five minutes lie between the two. If the earlier event never arrives, the later one
waits for fifteen minutes, and so do all events that follow it. That happens whenever

- the server was restarted in between, because it remembers only in memory which events it has
  passed on; for example, if a run and its server lose their power together;
- a schedule made the flow run less than five minutes before, because its first state never has an
  event;
- SQLite was busy, and Prefect dropped the earlier event.

With this module, an event waits only for `WAIT`. That is longer than one process takes to pass on
an event, even if it needs four attempts. The setting PREFECT_SERVER_EVENTS_CAUSAL_ORDERING names
this module.
"""

from datetime import UTC, datetime, timedelta

from prefect.server.events.ordering import memory
from prefect.server.events.schemas.events import ReceivedEvent

WAIT = timedelta(seconds=10)
GIVE_UP = timedelta(minutes=15)
"""An event that could not be passed on for this long is dropped."""


class CausalOrdering(memory.CausalOrdering):
    """Prefect's own ordering with a shorter wait."""

    async def wait_for_leader(self, event: ReceivedEvent) -> None:
        """Raise `EventArrivedEarly` for an event that has to wait."""
        if datetime.now(UTC) - event.received < WAIT:
            await super().wait_for_leader(event)

    async def get_lost_followers(self) -> list[ReceivedEvent]:
        """Return the events that have waited long enough, in the order in which they occurred.
        Prefect calls this every few seconds.

        An event stays on the list until it has been passed on; `preceding_event_confirmed` then
        removes it. If one of them fails, for example because SQLite is busy, Prefect passes on none
        of those behind it. Events that follow one on the list are passed on together with it.
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
            if now - event.received >= GIVE_UP:  # this is the last attempt
                await self.forget_follower(event)
        return sorted(lost, key=lambda event: event.occurred)
