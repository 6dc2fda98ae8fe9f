"""Work in threads: beside an event loop, and beside other processes."""

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")

BACKGROUND_NICENESS = 10
"""Leaves about a tenth of a core beside work that needs it."""


def yield_to_others() -> None:
    """Let the calling thread, from here on, take what processor time other threads and processes
    leave over. On Linux, where a thread has a niceness of its own; elsewhere nothing happens."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        niceness = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, max(niceness, BACKGROUND_NICENESS))


def event_loop_in_thread(name: str) -> asyncio.AbstractEventLoop:
    """Return a new event loop that runs in a thread of this name until stopped."""
    loop = asyncio.new_event_loop()

    def run() -> None:
        loop.run_forever()
        loop.close()

    threading.Thread(target=run, daemon=True, name=name).start()
    return loop


def call_in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Return what the function does, called in a thread of its own: an event loop, such as that of
    a notebook, may be at work in this one."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(function, *arguments).result()


async def in_thread(work: Callable[[], T]) -> T:
    """Return `work`'s result from a thread. A cancellation waits for its end: nothing is written
    behind those who clean up."""
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        while not working.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({working})
        working.exception()  # looked at: the cancellation is what counts
        raise


class BackgroundClock:
    """Adds up seconds by the name of the work, until somebody takes them. For several threads."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def running(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                spent = self._seconds.get(name, 0.0) + time.perf_counter() - began
                self._seconds[name] = spent

    def take(self) -> dict[str, float]:
        """Return what has ended since the last call."""
        with self._lock:
            taken, self._seconds = self._seconds, {}
        return taken
