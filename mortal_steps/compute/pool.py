"""The containers of one role: which are ready, which are free, and how a lost one comes back.

A worker joins when it has answered the role's `prepare` method. One that is lost leaves at once, is
started again beside the work of the others, and joins anew; what it was doing is for its caller to
repeat, on whichever worker is free. One that cannot be started is tried again as long as others
work; callers hear of it when nobody is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, Protocol

from mortal_steps.compute.base import Role
from mortal_steps.errors import TransientError
from mortal_steps.system.retry import retry_async


class _Waiting(NamedTuple):
    alone: bool
    granted: asyncio.Future[None]


class GpuLock:
    """The lock of a GPU that several workers of an event loop share.

    vLLM finds out what memory it may take by what is free before and after a trial, so a worker
    whose engine starts is alone, and all others work together. It is granted in the order asked:

        asked for   train  start  generate  generate  start
        under way   train | start | generate, generate | start
    """

    def __init__(self) -> None:
        self._is_alone = False
        self._together = 0
        self._waiting: deque[_Waiting] = deque()

    @contextlib.asynccontextmanager
    async def take(self, *, alone: bool) -> AsyncIterator[None]:
        """Hold the lock in the block, `alone` or together with others."""
        waiting = _Waiting(alone, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._grant()
        try:
            await waiting.granted
            yield
        finally:
            if waiting.granted.cancelled():
                self._waiting.remove(waiting)
            elif alone:
                self._is_alone = False
            else:
                self._together -= 1
            self._grant()

    def _grant(self) -> None:
        while self._waiting and not self._is_alone:
            alone, granted = self._waiting[0]
            if granted.cancelled():
                return  # who waited for it is about to leave, and looks again
            if alone and self._together:
                return
            self._is_alone, self._together = alone, self._together + (not alone)
            self._waiting.popleft()
            granted.set_result(None)


logger = logging.getLogger(__name__)

RESTART_DELAYS_S = (0.0, 5.0, 15.0)
"""Seconds before each further attempt to start a worker that ended while it was getting ready."""


class Container(Protocol):
    """A worker in another process or on another machine."""

    on_lost: Callable[[], None] | None
    """Called when the worker ended without being asked to."""

    async def call(self, method: str, payload: Mapping[str, Any], label: str) -> Any: ...

    async def close(self) -> None: ...


called: ContextVar[int | None] = ContextVar("called", default=None)
"""Number of the worker that took the last call of this asyncio task."""


class Pool:
    """Deals calls out to the containers of one role. `prepare` names the worker's method that makes
    it ready; without one a container is ready at once and starts at its first call. Containers that
    share a GPU hold its lock, `gpu`, during each call, and alone in the methods `alone_in`."""

    def __init__(
        self,
        containers: Sequence[Container],
        prepare: str | None,
        *,
        gpu: GpuLock | None = None,
        alone_in: Collection[str] = (),
    ) -> None:
        self.containers = containers
        self._prepare = prepare
        self._gpu, self._alone_in = gpu, alone_in
        self.ready: dict[int, int] = {}
        """The workers that take calls now: their numbers, and when each has joined last."""
        self._joinings = itertools.count()
        self._free: deque[int] = deque()
        """Those of `ready` that have no call, the one first that has been free the longest."""
        self._joining: dict[int, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._lost: TransientError | None = None
        """Why the last of those that could not be started was not."""
        self._refused: Exception | None = None
        """An error of a worker's own that kept it from getting ready: no further try helps."""
        for number in range(len(containers)):
            if prepare is None:
                self._join(number)
            else:
                containers[number].on_lost = partial(self._leave, number)

    async def call(
        self, method: str, payload: Mapping[str, Any], label: str, worker: int | None
    ) -> Any:
        """Call a method of the numbered worker, or of the first one that is free; see `taken`."""
        if worker is not None:
            called.set(worker)
            return await self._ask(self.containers[worker], method, payload, label)
        async with self.taken() as container:
            called.set(self.containers.index(container))
            return await self._ask(container, method, payload, label)

    @contextlib.asynccontextmanager
    async def taken(self) -> AsyncIterator[Container]:
        """Yield the next free container for the block. Raises the error that kept a worker from
        getting ready, and a `TransientError` if none could be started."""
        self._start_missing()
        number = await self._next_free()
        joined = self.ready[number]
        try:
            yield self.containers[number]
        finally:
            if self.ready.get(number) == joined:  # else it was lost, and may serve others by now
                self._offer(number)

    async def close(self) -> None:
        for container in self.containers:
            container.on_lost = None
        joining = list(self._joining.values())
        for task in joining:
            task.cancel()
        await asyncio.gather(*joining, return_exceptions=True)
        await asyncio.gather(*(container.close() for container in self.containers))

    async def _ask(
        self, container: Container, method: str, payload: Mapping[str, Any], label: str
    ) -> Any:
        if self._gpu is None:
            return await container.call(method, payload, label)
        async with self._gpu.take(alone=method in self._alone_in):
            return await container.call(method, payload, label)

    async def _next_free(self) -> int:
        while True:
            if self._refused is not None:
                raise self._refused
            if self._free:
                return self._free.popleft()
            if self._lost is not None and not self.ready and not self._joining:
                raise self._lost
            self._changed.clear()
            await self._changed.wait()

    def _start_missing(self) -> None:
        if self._prepare is not None:
            for number in range(len(self.containers)):
                if number not in self.ready and number not in self._joining:
                    self._joining[number] = asyncio.create_task(self._bring_up(number))

    async def _bring_up(self, number: int) -> None:
        try:
            await self._prepared(number)
            self._join(number)
        except TransientError as error:
            logger.warning("%s\nit does not start", error)
            self._lost = error
        except Exception as error:  # noqa: BLE001 - raised by whoever waits for a worker
            self._refused = error
        finally:
            del self._joining[number]
            self._changed.set()

    async def _prepared(self, number: int) -> None:
        assert self._prepare is not None
        await retry_async(
            partial(self._ask, self.containers[number], self._prepare, {}, self._prepare),
            on=TransientError,
            delays_s=RESTART_DELAYS_S,
            notice=lambda error: logger.warning("%s\nstarting it again", error),
        )

    def _join(self, number: int) -> None:
        self.ready[number] = next(self._joinings)
        self._offer(number)

    def _offer(self, number: int) -> None:
        self._free.append(number)
        self._changed.set()

    def _leave(self, number: int) -> None:
        if self.ready.pop(number, None) is not None:
            if number in self._free:
                self._free.remove(number)
            self._start_missing()


class Compute:
    """Where workers run: a pool for each role that the run has workers of."""

    def __init__(self, pools: Mapping[Role, Pool]) -> None:
        self.pools = pools

    async def start(self, role: Role) -> None:
        """Start the workers of `role`; return when the first is ready, others join later. Raises a
        worker's own error in getting ready, a `TransientError` if none could be started."""
        async with self.pools[role].taken():
            pass

    async def call(
        self, role: Role, method: str, *, key: str, worker: int | None = None, **payload: Any
    ) -> Any:
        """Call a method of one worker of `role`: the numbered one, which should be among
        `ready_workers`, or whichever is free first.

        Two calls of a run with the same `key`, such as `generate/12/0`, ask for the same piece of
        work. Raises the worker's own `MortalError`; `WorkerError` for any other exception there;
        `WorkerLostError` (transient) if the worker ended in mid-call. A lost worker is replaced.
        """
        return await self.pools[role].call(method, payload, key, worker)

    def ready_workers(self, role: Role) -> list[int]:
        """Return the numbers of the role's workers that take calls now."""
        return sorted(self.pools[role].ready)

    def joined(self, role: Role) -> dict[int, int]:
        """Return the same, with a number for each that it gets anew when it is restarted."""
        return dict(self.pools[role].ready)

    def spent(self) -> float:
        """Return the dollars that the workers of the run have cost, over all its attempts."""
        return 0.0

    async def close(self) -> None:
        await asyncio.gather(*(pool.close() for pool in self.pools.values()))
