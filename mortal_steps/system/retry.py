"""Repeat what may succeed later, after a delay that the caller chooses.

There is no jitter: those that ask the same service in one run are few.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
Errors = type[Exception] | tuple[type[Exception], ...]
Notice = Callable[[Exception], object]
"""Called with each error after which the work is repeated."""


def backoff(first_s: float, longest_s: float = math.inf) -> Iterator[float]:
    """Return delays without end, each twice as long as the one before, up to `longest_s`."""
    delay = first_s
    while True:
        yield min(delay, longest_s)
        delay *= 2


def retry(
    work: Callable[[], T],
    *,
    on: Errors,
    delays_s: Iterable[float],
    for_s: float = math.inf,
    notice: Notice = lambda error: None,
) -> T:
    """Return what `work` does, repeated after each delay while it raises one of `on`. Raises the
    last error once delays or `for_s` seconds are used up."""
    delays = within(delays_s, for_s)
    while True:
        try:
            return work()
        except on as error:
            if (delay := next(delays, None)) is None:
                raise
            notice(error)
        time.sleep(delay)


async def retry_async(
    work: Callable[[], Awaitable[T]],
    *,
    on: Errors,
    delays_s: Iterable[float],
    for_s: float = math.inf,
    notice: Notice = lambda error: None,
) -> T:
    """Await `work`, repeated as by `retry`."""
    delays = within(delays_s, for_s)
    while True:
        try:
            return await work()
        except on as error:
            if (delay := next(delays, None)) is None:
                raise
            notice(error)
        await asyncio.sleep(delay)


def within(delays_s: Iterable[float], for_s: float) -> Iterator[float]:
    """Return those delays that end no later than `for_s` seconds after the first is asked for."""
    give_up = time.monotonic() + for_s
    for delay in delays_s:
        if time.monotonic() + delay > give_up:
            return
        yield delay
