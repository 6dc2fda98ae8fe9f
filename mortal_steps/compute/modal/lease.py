"""The lease of a run on Modal: machines that share nothing but the account drive it one at a time.

A record in a Modal Dict, renewed every few seconds, with the rules of `mortal_steps.lease`: it
holds until its process is gone, as far as can be told from here, or it was not renewed for
`LEASE_TTL_S`. Whoever finds another's token in it has lost the run and asks no container any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import replace

import modal
from modal import exception

from mortal_steps.compute.modal.asking import patiently
from mortal_steps.errors import LeaseLostError, StoreError
from mortal_steps.lease import LEASE_TTL_S, RENEW_EVERY_S, LeaseRecord

logger = logging.getLogger(__name__)

LEASES = "mortal-leases"


class ModalLease:
    """A lease held by this process; `acquire` makes one."""

    def __init__(self, run_id: str, leases: modal.Dict, record: LeaseRecord) -> None:
        self._run_id = run_id
        self._leases = leases
        self._record = record
        self._taken_by: LeaseRecord | None = None
        self._renewing = asyncio.create_task(self._renew())

    def check(self) -> None:
        """Raise `LeaseLostError` if another process was found to have taken the run over."""
        if self._taken_by is not None:
            raise LeaseLostError(
                f"run {self._run_id} was taken over by process {self._taken_by.pid} on "
                f"{self._taken_by.host}; it goes on there"
            )

    async def release(self) -> None:
        """Let another process drive the run."""
        self._renewing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._renewing
        try:
            holder = await self._leases.get.aio(self._run_id)
            if holder is not None and holder.token == self._record.token:
                await self._leases.pop.aio(self._run_id)
        except (exception.Error, OSError) as error:
            logger.warning("the lease on Modal ends by itself in %.0f s: %s", LEASE_TTL_S, error)

    async def _renew(self) -> None:
        while self._taken_by is None:
            await asyncio.sleep(RENEW_EVERY_S)
            try:
                holder = await self._leases.get.aio(self._run_id)
                if holder is not None and holder.token != self._record.token:
                    self._taken_by = holder
                else:
                    renewed = replace(self._record, renewed_at=time.time())
                    await self._leases.put.aio(self._run_id, renewed)
            except (exception.Error, OSError) as error:
                logger.warning("the lease on Modal is not renewed: %s", error)


async def find_lease(run_id: str) -> LeaseRecord | None:
    """Who drives the run on Modal, as far as the record tells; None if it was given back."""
    leases = modal.Dict.from_name(LEASES, create_if_missing=True)
    record: LeaseRecord | None = await patiently(LEASES, lambda: leases.get.aio(run_id))
    return record


async def acquire(run_id: str) -> ModalLease:
    """Become the one process that drives the run on Modal; raises `StoreError` if another does.

    A container takes the place of one that was taken away, and waits for that one's lease to end.
    """
    leases = modal.Dict.from_name(LEASES, create_if_missing=True)
    patience_s = 0.0 if modal.is_local() else LEASE_TTL_S + RENEW_EVERY_S
    deadline = time.monotonic() + patience_s
    record = LeaseRecord.of_this_process()
    while not await patiently(LEASES, lambda: leases.put.aio(run_id, record, skip_if_exists=True)):
        holder: LeaseRecord | None = await patiently(LEASES, lambda: leases.get.aio(run_id))
        if holder is None:
            continue
        if holder.holds() and time.monotonic() < deadline:
            await asyncio.sleep(RENEW_EVERY_S)
        elif holder.holds():
            raise StoreError(
                f"run {run_id} is driven on Modal by process {holder.pid} on {holder.host}, which "
                f"renewed its lease {holder.age_s():.0f} s ago; if that process is gone, the run "
                f"can be taken over in {LEASE_TTL_S - holder.age_s():.0f} s"
            )
        else:
            await patiently(LEASES, lambda: leases.pop.aio(run_id, None))
    return ModalLease(run_id, leases, record)
