"""Calls that nobody waits for any more: containers do not go on with them, and are not paid for.
Who may ask at all: one machine of those that want a run."""

import asyncio
import contextlib
import os
import signal
import threading
import time

import pytest

from mortal_flows.signals import stop_on_signals
from mortal_flows.stop import Stop, StopRequested
from mortal_steps.errors import StoreError, WorkerLostError
from mortal_steps.orchestration import driver
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.places.modal.files import volume_lease
from mortal_steps.places.modal.files.volume import RunsVolume
from mortal_steps.runs.lease import LeaseRecord
from tests.support import bare_flow
from tests.support.modal.project import ON_MODAL, project

VOLUME = RunsVolume("mortal-runs")
START = "start_workers/0/0"


def test_a_call_beyond_its_deadline_or_of_a_run_that_ends_is_cancelled(plane, tmp_path):
    config = project(tmp_path, "late", *ON_MODAL, "compute.modal.call_timeout_s=1")
    calls = tmp_path / "runs/late/calls"

    async def wait_too_long(run):
        async with driver.open_session(run) as session:
            await session.compute.call("actor", "prepare", key=START, step=0)

    async def be_told_to_end(run):
        stop = Stop()
        with contextlib.suppress(StopRequested), stop_on_signals(stop, print, deployed=True):
            async with driver.open_session(run) as session:
                await stop.guard(session.compute.call("actor", "prepare", key=START, step=0))
        assert stop.reason == "SIGTERM"

    def cancel():
        """As Prefect's worker does."""
        while not list(calls.glob("*.json")):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    def cancelled():
        return {event["call"] for event in plane.events("call_cancelled")}

    before = cancelled()
    with bare_flow.bare_in(tmp_path):
        run = open_run(config)
        with pytest.raises(WorkerLostError, match=r"has no result after 1 s \(compute.modal.call"):
            asyncio.run(wait_too_long(run))
        assert len(cancelled() - before) == 1
        threading.Thread(target=cancel).start()
        asyncio.run(be_told_to_end(run))
    assert len(cancelled() - before) == 2
    assert list(calls.iterdir()) == []
    plane.wait_until(lambda: not [task for task in plane.tasks() if task["gpu"]], 30)


def test_of_machines_that_want_one_run_one_drives_it(plane, monkeypatch):
    monkeypatch.setattr(LeaseRecord, "is_here", lambda record: False)

    async def want_it(number):
        asking = [volume_lease.acquire(VOLUME, "wanted") for _ in range(4)]
        tried = await asyncio.gather(*asking, return_exceptions=True)
        (held,) = [one for one in tried if isinstance(one, volume_lease.ModalLease)]
        assert [type(one) for one in tried].count(StoreError) == 3
        assert held.number == number
        await volume_lease.put_up_fence(VOLUME, held, "wanted")
        assert await volume_lease.newest_fence(VOLUME, "wanted") == number
        await held.release()

    for number in (1, 2):
        asyncio.run(want_it(number))
