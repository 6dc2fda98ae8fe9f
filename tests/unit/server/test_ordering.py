"""Events whose forerunner the server does not know reach its automations all the same, soon."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from prefect.server.events.ordering import EventArrivedEarly, memory
from prefect.server.events.schemas.events import ReceivedEvent, Resource

from mortal.server.ordering import WAIT, CausalOrdering

WAIT_S = 0.5


@pytest.fixture
def ordering(monkeypatch):
    assert memory.PRECEDING_EVENT_LOOKBACK == WAIT
    monkeypatch.setattr(memory, "PRECEDING_EVENT_LOOKBACK", timedelta(seconds=WAIT_S))
    yield CausalOrdering(scope="a-test")
    CausalOrdering.clear_all_scopes()


def event(name, *, follows=None):
    """An event that the server has just received."""
    at = datetime.now(UTC)
    return ReceivedEvent(
        occurred=at,
        received=at,
        event=name,
        id=uuid4(),
        follows=follows,
        resource=Resource.model_validate({"prefect.resource.id": "prefect.flow-run.x"}),
    )


async def show(ordering, shown):
    """A handler that keeps the names of what it is shown."""

    async def handler(each, depth=0):
        async with ordering.preceding_event_confirmed(handler, each, depth):
            shown.append(each.event)

    return handler


async def test_an_event_waits_for_the_one_it_follows(ordering):
    shown = []
    handler = await show(ordering, shown)
    first = event("Running")
    with pytest.raises(EventArrivedEarly):
        await handler(event("Crashed", follows=first.id))
    assert shown == [] and await ordering.get_lost_followers() == []
    await handler(first)
    assert shown == ["Running", "Crashed"]


async def test_what_follows_an_event_that_never_comes_is_shown_after_a_while(ordering):
    shown = []
    handler = await show(ordering, shown)
    pending = event("Pending", follows=uuid4())
    running = event("Running", follows=pending.id)
    for each in (pending, running):
        with pytest.raises(EventArrivedEarly):
            await handler(each)
    await asyncio.sleep(WAIT_S)
    for lost in await ordering.get_lost_followers():
        await handler(lost)
    assert shown == ["Pending", "Running"]
    assert await ordering.get_lost_followers() == []
