"""Work that waits for the disk, beside an event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """What `work` returns, called in a thread.

    Whoever is cancelled meanwhile hears of it when `work` is done: nothing is written behind the
    back of those who clean up.
    """
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        while not working.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({working})
        working.exception()  # looked at: the cancellation is what counts
        raise
