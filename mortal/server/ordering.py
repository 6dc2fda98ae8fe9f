"""Lets a Prefect server show an event to its automations soon, though one before it is missing.

Prefect shows an event only after the event that it follows, for example Crashed after Running, if
less than five minutes lie between the two. If the earlier event never comes, the later one waits
for fifteen minutes, and so do all that follow it. That happens

- if the server was restarted in between, because only its memory has what it has shown; for
  example, if a run and its server lose their power together;
- if a schedule made the flow run less than five minutes before, because its first state never has
  an event.

With this module an event waits for `WAIT`. The setting PREFECT_SERVER_EVENTS_CAUSAL_ORDERING names
the module; the limit itself has no setting. https://github.com/PrefectHQ/prefect/issues/20954 tells
of the same wait on Redis.
"""

from datetime import timedelta

from prefect.server.events.ordering import memory

WAIT = timedelta(seconds=10)
"""Longer than a process takes to pass on an event, even with four attempts."""

memory.PRECEDING_EVENT_LOOKBACK = WAIT  # type: ignore[attr-defined]
CausalOrdering = memory.CausalOrdering
