"""The containers of one role: which are ready, which are free, and how a lost one comes back.

A worker joins when it has answered the role's `prepare` method. One that is lost leaves at once, is
started again beside the work of the others, and joins anew; what it was doing is for its caller to
repeat, on whichever worker is free.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from mortal_steps.errors import TransientError, WorkerLostError

logger = logging.getLogger(__name__)

RESTART_DELAYS_S = (0.0, 5.0, 15.0)
"""Before each further try to start a worker that ended while it prepared itself."""


class Container(Protocol):
    """A worker somewhere else."""

    on_lost: Callable[[], None] | None
    """Called when it ended without being asked to."""

    async def call(self, method: str, payload: Mapping[str, Any], label: str) -> Any: ...

    async def close(self) -> None: ...


C = TypeVar("C", bound=Container)


class Pool(Generic[C]):
    """Deals calls out to the containers of one role.

    `prepare` names the worker's method that makes it ready; without one a container is ready at
    once and starts at its first call.
    """

    def __init__(self, containers: Sequence[C], prepare: str | None) -> None:
        self.containers = containers
        self._prepare = prepare
        self._ready: set[int] = set()
        self._joining: dict[int, asyncio.Task[None]] = {}
        self._free: asyncio.Queue[int | Exception] = asyncio.Queue()
        for number in range(len(containers)):
            if prepare is None:
                self._join(number)
            else:
                self._watch(number)

    def ready_workers(self) -> list[int]:
        """Numbers of the workers that take calls now."""
        return sorted(self._ready)

    async def first_ready(self) -> None:
        """Start what is not started; return when at least one worker is ready and free.

        Raises what kept a worker from starting.
        """
        async with self.taken():
            pass

    @contextlib.asynccontextmanager
    async def taken(self) -> AsyncIterator[C]:
        """The next free container, for the time of the block."""
        self._start_missing()
        number = await self._next_free()
        try:
            yield self.containers[number]
        finally:
            if number in self._ready:
                self._free.put_nowait(number)

    async def close(self) -> None:
        """End every container."""
        for container in self.containers:
            container.on_lost = None
        joining = list(self._joining.values())
        for task in joining:
            task.cancel()
        await asyncio.gather(*joining, return_exceptions=True)
        await asyncio.gather(*(container.close() for container in self.containers))

    async def _next_free(self) -> int:
        while True:
            found = await self._free.get()
            if isinstance(found, TransientError) and (self._ready or self._joining):
                continue  # the others work meanwhile, or it is being started once more
            if isinstance(found, Exception):
                self._free.put_nowait(found)  # for the next who asks
                raise found
            if found in self._ready:
                return found
            # It was lost while it stood here, and joins again by itself.

    def _start_missing(self) -> None:
        if self._prepare is not None:
            for number in range(len(self.containers)):
                if number not in self._ready and number not in self._joining:
                    self._joining[number] = asyncio.create_task(self._bring_up(number))

    async def _bring_up(self, number: int) -> None:
        try:
            await self._prepared(number)
            self._join(number)
        except Exception as error:  # noqa: BLE001 - raised by whoever waits for a worker
            self._free.put_nowait(error)
        finally:
            del self._joining[number]

    async def _prepared(self, number: int) -> None:
        assert self._prepare is not None
        for delay in RESTART_DELAYS_S:
            try:
                await self.containers[number].call(self._prepare, {}, self._prepare)
                return
            except WorkerLostError as error:
                logger.warning("%s\nstarting it again", error)
                await asyncio.sleep(delay)
        await self.containers[number].call(self._prepare, {}, self._prepare)

    def _join(self, number: int) -> None:
        self._ready.add(number)
        self._free.put_nowait(number)

    def _watch(self, number: int) -> None:
        def lost() -> None:
            if number in self._ready:
                self._ready.remove(number)
                self._start_missing()

        self.containers[number].on_lost = lost
