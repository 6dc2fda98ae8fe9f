"""The lock of a GPU that several workers share.

vLLM finds out how much memory it may take by what is free before and after a trial. If another
process takes memory meanwhile, it leaves itself too little, and if one gives memory back, it does
not start. So a worker whose engine starts is alone, and all others work together. The lock is
granted in the order in which it was asked for:

    asked for   train  start  generate  generate  start
    under way   train | start | generate, generate | start
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import NamedTuple


class _Waiting(NamedTuple):
    alone: bool
    granted: asyncio.Future[None]


class GpuLock:
    """The lock of one GPU, for the workers that one event loop calls."""

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
