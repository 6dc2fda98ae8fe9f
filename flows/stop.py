"""Requests to stop a run in order, whoever makes them: a signal, Prefect, or the loop itself."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from mortal_steps.errors import ServerError

T = TypeVar("T")


class StopRequested(Exception):
    """Raised by `Stop.guard` when the stop comes before the result that it waits for."""


class Stop:
    """Whether the run stops before its last step, and for which reason."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.reason = ""
        """Such as `SIGINT`."""
        self.error: ServerError | None = None
        """What forces the run to stop; None where somebody asked for it."""

    @property
    def requested(self) -> bool:
        return self._event.is_set()

    def request(self, reason: str, error: ServerError | None = None) -> None:
        """Ask the run to stop; the first reason given is the one reported."""
        if not self.requested:
            self.reason, self.error = reason, error
            self._event.set()

    async def wait(self) -> None:
        """Return once a stop is requested."""
        await self._event.wait()

    async def guard(self, work: Awaitable[T]) -> T:
        """Return the result of `work`. If the stop comes first, `work` is cancelled and
        `StopRequested` is raised."""
        working = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._event.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if self.requested:
                raise StopRequested
            return working.result()
        finally:
            stopping.cancel()
            if not working.done():
                working.cancel()
                await asyncio.wait({working})
            if self.requested and not working.cancelled():
                working.exception()  # looked at: the stop is what counts
