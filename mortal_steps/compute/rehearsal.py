"""A worker of a run that has not begun: what a check before it asks of one."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.local import LocalContainer


class Rehearsal:
    """One worker, in a process that starts with the first call and ends with the block, interrupted
    or not. Calls are made one after the other, while the caller goes on.

    May be used where an event loop runs already.
    """

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._calls: set[asyncio.Task[Any]] = set()

    def __enter__(self) -> Self:
        self._container = LocalContainer(
            "rehearsal", self._spec, 0, Path.cwd(), None, log_in_scratch=True
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rehearsal")
        self._thread.start()
        return self

    def begin(self, method: str, **payload: Any) -> concurrent.futures.Future[Any]:
        """The call's result, in time; raises what `Compute.call` raises when it is asked for."""
        return asyncio.run_coroutine_threadsafe(self._call(method, payload), self._loop)

    async def _call(self, method: str, payload: dict[str, Any]) -> Any:
        calling = asyncio.create_task(self._container.call(method, payload, method))
        self._calls.add(calling)
        try:
            return await calling
        finally:
            self._calls.discard(calling)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _end(self) -> None:
        """Let go of calls under way, then end the process."""
        calls = list(self._calls)
        for calling in calls:
            calling.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self._container.close()


def call_once(spec: WorkerSpec, method: str, **payload: Any) -> Any:
    """One call of one worker in a process that lives for this call alone; blocking."""
    with Rehearsal(spec) as worker:
        return worker.begin(method, **payload).result()
