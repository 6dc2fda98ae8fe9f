"""mortal_tasks.server_watch where the server's answers contradict each other."""

import asyncio
from types import SimpleNamespace
from uuid import uuid4

import pytest
from prefect.exceptions import ObjectNotFound
from prefect.logging import disable_run_logger
from prefect.states import Crashed

from mortal_tasks import server_watch
from mortal_tasks.server_watch import ServerWatch


class Deleting:
    """A client whose flow run is deleted just after it was read."""

    async def api_healthcheck(self):
        return None

    async def read_flow_run(self, flow_run_id):
        return SimpleNamespace(state=Crashed(), deployment_id=None)

    async def set_flow_run_state(self, *_, force):
        raise ObjectNotFound(KeyError("no such flow run"))


async def test_a_flow_run_that_is_deleted_while_it_is_looked_at_ends_no_run():
    watch = ServerWatch(Deleting(), uuid4(), 60, print)
    with disable_run_logger():
        assert not await watch._answers(), "the next look tells"


class Kept:
    """Task runs of which the server writes none down, or one at each look."""

    muted = False

    def __init__(self, *, written: bool):
        self.left = 8
        self._written = written

    def __len__(self):
        return self.left

    async def forget_recorded(self, client):
        self.left -= self._written

    def tell_short(self):
        pass

    tell_again = tell_short


@pytest.mark.parametrize(("written", "left"), [(True, 0), (False, 8)])
async def test_a_run_ends_soon_where_the_server_writes_nothing_down(monkeypatch, written, left):
    """Its disk is full, or its clock has been set back. One that is slow is waited for."""
    monkeypatch.setattr(server_watch, "WRITTEN_POLL_S", 0.05)
    monkeypatch.setattr(server_watch, "NOTHING_WRITTEN_S", 0.2)
    watch = ServerWatch(None, uuid4(), 60, print)
    watch._history = kept = Kept(written=written)
    with disable_run_logger():
        async with asyncio.timeout(5):
            await watch.written_down()
    assert len(kept) == left
