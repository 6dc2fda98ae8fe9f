"""Machines that want the same run: one of them drives it, whatever happens between two requests."""

import asyncio
import dataclasses
import time
from types import SimpleNamespace

import modal
import pytest

from mortal_steps.errors import LeaseLostError, StoreError
from mortal_steps.places.modal.compute import _end
from mortal_steps.places.modal.files import volume_lease
from mortal_steps.places.modal.files.volume import RunsVolume
from mortal_steps.runs.lease import LEASE_TTL_S, LeaseRecord

VOLUME = RunsVolume("any")
GONE = dataclasses.replace(
    LeaseRecord.of_this_process(), boot="of another machine", renewed_at=time.time() - LEASE_TTL_S
)


class Entries(dict):
    """A Modal Dict, here: each request takes its turn, and others come between any two."""

    def __getattribute__(self, name):
        if name not in ("get", "put", "contains", "update"):
            return super().__getattribute__(name)
        answer = getattr(self, f"_{name}", None) or super().__getattribute__(name)

        class Request:
            @staticmethod
            async def aio(*arguments, **options):
                await asyncio.sleep(0)
                return answer(*arguments, **options)

        return Request

    def _contains(self, key):
        return key in self

    def _put(self, key, value, skip_if_exists=False):
        if skip_if_exists and key in self:
            return False
        self[key] = value
        return True


@pytest.fixture
def entries(monkeypatch):
    """What the account holds; every process here is a machine of its own."""
    entries = Entries()
    monkeypatch.setattr(modal.Dict, "from_name", lambda *_, **__: entries)
    monkeypatch.setattr(volume_lease, "RENEW_EVERY_S", 0.02)
    monkeypatch.setattr(LeaseRecord, "is_here", lambda record: False)
    return entries


async def test_of_many_that_find_a_lease_run_out_one_has_it(entries):
    entries |= {"run": 3, "run/3": GONE}
    tried = await asyncio.gather(
        *(volume_lease.acquire(VOLUME, "run") for _ in range(20)), return_exceptions=True
    )
    (held,) = [one for one in tried if isinstance(one, volume_lease.ModalLease)]
    assert {type(one) for one in tried} == {volume_lease.ModalLease, StoreError}
    await asyncio.sleep(0.1)
    await held.check()
    await held.release()
    assert await volume_lease.find_lease(VOLUME, "run") is None
    again = await volume_lease.acquire(VOLUME, "run")
    assert entries["run/5"] == await volume_lease.find_lease(VOLUME, "run")
    await again.release()


async def test_numbers_go_on_where_the_account_has_forgotten_the_leases(entries):
    """A container refuses what is asked with a number older than one on the Volume."""
    held = await volume_lease.acquire(VOLUME, "run", after=7)
    assert held.number == 8
    await asyncio.sleep(0.05)
    await held.check()
    with pytest.raises(StoreError, match="is driven on Modal by process"):
        await volume_lease.acquire(VOLUME, "run", after=7)
    await held.release()


async def test_a_holder_that_slept_has_lost_the_run_and_does_not_take_it_back(entries, monkeypatch):
    slept = await volume_lease.acquire(VOLUME, "run")
    with pytest.raises(StoreError, match="is driven on Modal by process"):
        await volume_lease.acquire(VOLUME, "run")
    old = dataclasses.replace(entries["run/1"], renewed_at=GONE.renewed_at)
    slept._renewing.cancel()  # its machine stands still
    entries["run/1"] = slept.record = old
    taker = await volume_lease.acquire(VOLUME, "run")
    with pytest.raises(LeaseLostError, match="was taken over by process"):
        await slept.check()
    assert slept.is_lost
    await slept.release()
    await asyncio.sleep(0.1)
    await taker.check()
    assert (await volume_lease.find_lease(VOLUME, "run")).token == taker.record.token
    await taker.release()


async def test_a_container_is_no_neighbour_of_another_one(entries, monkeypatch):
    """On Modal they all have one host name, and the same numbers of processes."""
    monkeypatch.undo()
    monkeypatch.setattr(modal.Dict, "from_name", lambda *_, **__: entries)
    monkeypatch.setenv("MODAL_TASK_ID", "ta-1")
    held = await volume_lease.acquire(VOLUME, "run")
    record = dataclasses.replace(
        await volume_lease.find_lease(VOLUME, "run"), started="of another container"
    )
    assert record.host == "ta-1"
    assert record.holds()
    await held.release()


async def test_whoever_lost_the_run_leaves_what_is_on_modal_alone(entries):
    done = []

    def note(what):
        async def noted(*_):
            done.append(what)

        return noted

    def run_with(lease):
        return SimpleNamespace(
            lease=lease,
            mirror=SimpleNamespace(push=note("push")),
            calls=SimpleNamespace(cancel_all=note("cancel")),
            meter=SimpleNamespace(ended=lambda _: None),
        )

    loser = await volume_lease.acquire(VOLUME, "run")
    entries["run/2"] = entries["run/1"]
    while not loser.is_lost:
        await asyncio.sleep(0.01)
    await _end(SimpleNamespace(close=note("close")), run_with(loser))
    assert done == ["close"], "workers beside the flow go"

    holder = await volume_lease.acquire(VOLUME, "another")
    await _end(SimpleNamespace(close=note("close")), run_with(holder))
    assert done == ["close", "cancel", "close", "push"]
    await holder.release()
