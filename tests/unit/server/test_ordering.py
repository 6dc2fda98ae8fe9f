"""Events whose forerunner the server does not know reach its automations all the same, soon."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from prefect.server.events.ordering import EventArrivedEarly
from prefect.server.events.schemas.events import ReceivedEvent, Resource

from mortal.server.ordering import GIVE_UP, WAIT, CausalOrdering


@pytest.fixture
def ordering():
    yield CausalOrdering(scope="a-test")
    CausalOrdering.clear_all_scopes()


def event(name, *, follows=None, age=timedelta(0)):
    """An event that the server has received so long ago."""
    at = datetime.now(UTC) - age
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
    pending = event("Pending", follows=uuid4(), age=WAIT - timedelta(seconds=5))
    running = event("Running", follows=pending.id)
    for each in (pending, running):
        with pytest.raises(EventArrivedEarly):
            await handler(each)
    pending.received -= timedelta(seconds=5)
    (lost,) = await ordering.get_lost_followers()
    await handler(lost)
    assert shown == ["Pending", "Running"]
    assert await ordering.get_lost_followers() == []


async def test_an_event_that_could_not_be_shown_is_shown_later_once(ordering):
    """Prefect shows the lost ones in a loop that ends with the first exception."""
    shown = []
    handler = await show(ordering, shown)
    crashed, cancelled = (event(name, follows=uuid4()) for name in ("Crashed", "Cancelled"))
    recovering = event("Recovering", follows=crashed.id)
    for each in (crashed, cancelled, recovering):
        with pytest.raises(EventArrivedEarly):
            await handler(each)
        each.received -= WAIT
    first_time = await ordering.get_lost_followers()
    assert first_time == await ordering.get_lost_followers() == [crashed, cancelled]
    for lost in first_time:
        await handler(lost)
    assert shown == ["Crashed", "Recovering", "Cancelled"]
    assert await ordering.get_lost_followers() == []


async def test_an_event_that_can_never_be_shown_is_given_up(ordering):
    handler = await show(ordering, [])
    never = event("Crashed", follows=uuid4())
    with pytest.raises(EventArrivedEarly):
        await handler(never)
    never.received -= GIVE_UP
    assert await ordering.get_lost_followers() == [never]
    assert await ordering.get_lost_followers() == []
