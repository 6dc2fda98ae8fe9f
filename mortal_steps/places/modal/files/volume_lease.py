"""The lease of a run on Modal: machines that share nothing but the account drive it one at a time.

A Modal Dict beside the Volume has an entry for every lease that the run ever had, by number:

    RUN/3        the third one's holder, renewed every few seconds; None once it was given back
    RUN/3/stop   who asked that holder to stop; it looks whenever it renews
    RUN          3, or less: where to begin to look for the newest

The rules are those of `mortal_steps.runs.lease`: a lease holds until its process is gone, as far as
can be told from here, or it was not renewed for `LEASE_TTL_S`. Then the next number is free, and
Modal gives an entry that is not there yet to one of all who ask for it. Only its holder writes one,
so nobody ever writes over another's. Whoever finds the number after its own taken has lost the run
and asks no container any more. Entries that nobody reads go by themselves, after seven days; the
Volume keeps the numbers, for the containers (messages.py) and for whoever takes the next one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import modal
from modal import exception

from mortal_steps.errors import LeaseLostError, StoreError
from mortal_steps.places.modal.files.volume import RunsVolume
from mortal_steps.places.modal.messages import LEASES
from mortal_steps.places.modal.retry import call_with_retries
from mortal_steps.runs.lease import LEASE_TTL_S, RENEW_EVERY_S, LeaseRecord

logger = logging.getLogger(__name__)


class ModalLease:
    """A lease held by this process; `acquire` makes one."""

    def __init__(self, run_id: str, leases: modal.Dict, number: int, record: LeaseRecord) -> None:
        self.number = number
        """How many leases of the run there have been, this one included."""
        self._run_id = run_id
        self._leases = leases
        self.record = record
        """Who holds it: this process."""
        self.on_stop: Callable[[str], None] | None = None
        """Told who asked the run to stop."""
        self._lost: LeaseLostError | None = None
        self._released = asyncio.Event()
        self._renewing = asyncio.create_task(self._renew_until_released())

    @property
    def is_lost(self) -> bool:
        """Whether another process was found to have taken the run over."""
        return self._lost is not None

    def note_lost(self, error: LeaseLostError) -> None:
        self._lost = error

    async def check(self) -> None:
        """Raise `LeaseLostError` if the run was taken over. A lease not renewed lately, as after
        sleep, is renewed first; raises `TransientError` if that cannot be done."""
        if self._lost is None and self.record.age_s() > LEASE_TTL_S / 2:
            await call_with_retries(self._run_id, self._renew)
        if self._lost is not None:
            raise self._lost

    async def release(self) -> None:
        self._released.set()
        await asyncio.wait([self._renewing], timeout=RENEW_EVERY_S)
        self._renewing.cancel()
        try:
            await self._leases.put.aio(_entry(self._run_id, self.number), None)
        except (exception.Error, OSError) as error:
            logger.warning("the lease on Modal ends by itself in %.0f s: %s", LEASE_TTL_S, error)

    async def _renew_until_released(self) -> None:
        while self._lost is None and not await self._is_released(RENEW_EVERY_S):
            try:
                await self._renew()
            except (exception.Error, OSError) as error:
                logger.warning("the lease on Modal is not renewed: %s", error)

    async def _is_released(self, within_s: float) -> bool:
        try:
            await asyncio.wait_for(self._released.wait(), within_s)
        except TimeoutError:
            return False
        return True

    async def _renew(self) -> None:
        if await self._leases.contains.aio(_entry(self._run_id, self.number + 1)):
            _, holder = await _newest(self._leases, self._run_id)
            who = f"process {holder.pid} on {holder.host}" if holder else "another process"
            self._lost = LeaseLostError(
                f"run {self._run_id} was taken over by {who}, because this process did not renew "
                f"its lease on Modal for {LEASE_TTL_S:.0f} s; the run continues there"
            )
            return
        renewed = replace(self.record, renewed_at=time.time())
        await self._leases.update.aio(
            {self._run_id: self.number, _entry(self._run_id, self.number): renewed}
        )
        self.record = renewed
        who = await self._leases.get.aio(_stop_entry(self._run_id, self.number))
        if who is not None and self.on_stop is not None:
            self.on_stop(who)


async def put_up_fence(volume: RunsVolume, lease: ModalLease, run_id: str) -> None:
    """From now on no container begins what is asked with an earlier lease (messages.py)."""
    who = f"process {lease.record.pid} on {lease.record.host}\n"
    await volume.upload({f"{run_id}/{LEASES}/{lease.number}": who.encode()})


async def newest_fence(volume: RunsVolume, run_id: str) -> int:
    """Return the number of the run's newest lease as the Volume, which forgets nothing, tells."""
    paths = await volume.files(f"{run_id}/{LEASES}")
    names = (path.rpartition("/")[2] for path in paths)
    return max((int(name) for name in names if name.isdecimal()), default=0)


async def find_lease(volume: RunsVolume, run_id: str) -> LeaseRecord | None:
    """Who drives the run on Modal, as far as the record tells; None if it was given back."""
    leases = _leases_of(volume)
    _, holder = await call_with_retries(run_id, partial(_newest, leases, run_id))
    return holder


async def ask_to_stop(volume: RunsVolume, run_id: str, who: str) -> LeaseRecord:
    """Tell the run's driver on Modal that `who` wants it to stop; returns the driver. Raises
    `StoreError` if there is none."""
    leases = _leases_of(volume)
    number, holder = await call_with_retries(run_id, partial(_newest, leases, run_id))
    if holder is None or not holder.holds():
        raise StoreError(f"no process drives run {run_id} on Modal; there is nothing to stop")
    asking = leases.put.aio
    await call_with_retries(run_id, lambda: asking(_stop_entry(run_id, number), who))
    return holder


async def acquire(volume: RunsVolume, run_id: str, after: int = 0) -> ModalLease:
    """Become the one process that drives the run on Modal, by a lease whose number is greater than
    `after`; raises `StoreError` if another process does. A container takes the place of one that
    was taken away, and waits for that one's lease to end."""
    leases = _leases_of(volume)
    deadline = time.monotonic() + (0.0 if modal.is_local() else LEASE_TTL_S + RENEW_EVERY_S)
    record = _this_process()
    while True:
        number, holder = await call_with_retries(run_id, partial(_newest, leases, run_id, after))
        if holder is not None and holder.token == record.token:
            return ModalLease(run_id, leases, number, holder)
        if holder is None or not holder.holds():
            await call_with_retries(run_id, partial(_claim, leases, run_id, number + 1, record))
        elif time.monotonic() < deadline:
            await asyncio.sleep(RENEW_EVERY_S)
        else:
            raise in_use(run_id, holder)


def _leases_of(volume: RunsVolume) -> modal.Dict:
    """Of the runs on the Volume: those on another one may have the same ids."""
    return modal.Dict.from_name(f"{volume.name}-leases", create_if_missing=True)


def in_use(run_id: str, holder: LeaseRecord) -> StoreError:
    """Return the error to raise where another process drives the run."""
    return StoreError(
        f"run {run_id} is driven on Modal by process {holder.pid} on {holder.host}, which renewed "
        f"its lease {holder.age_s():.0f} s ago; if that process is gone, the run can be taken over "
        f"in {LEASE_TTL_S - holder.age_s():.0f} s"
    )


async def _newest(
    leases: modal.Dict, run_id: str, after: int = 0
) -> tuple[int, LeaseRecord | None]:
    """Return number and holder of the run's newest lease, which is `after` at least."""
    number: int = max(after, await leases.get.aio(run_id, 0))
    while await leases.contains.aio(_entry(run_id, number + 1)):
        number += 1
    return number, await leases.get.aio(_entry(run_id, number))


async def _claim(leases: modal.Dict, run_id: str, number: int, record: LeaseRecord) -> None:
    mine = replace(record, renewed_at=time.time())
    await leases.put.aio(_entry(run_id, number), mine, skip_if_exists=True)


def _this_process() -> LeaseRecord:
    """Containers all go by one host name, and of one that is gone no other can tell: their leases
    end by time alone."""
    record = LeaseRecord.of_this_process()
    return replace(record, host=os.environ.get("MODAL_TASK_ID", record.host))


def _entry(run_id: str, number: int) -> str:
    return f"{run_id}/{number}"


def _stop_entry(run_id: str, number: int) -> str:
    return f"{_entry(run_id, number)}/stop"
