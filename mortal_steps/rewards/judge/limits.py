"""Limits on requests to a judge: how many at a time, and how much in any 60 seconds."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

WINDOW_S = 60.0
ROUNDING_S = 0.001
MANY = 1_000_000


class NoRoomError(Exception):
    """The limits do not allow the request in time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """The time, and a way to wait."""

    now: Callable[[], float] = time.monotonic
    """Seconds since some moment."""
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowed:
    """The limits for one model at one endpoint; None: no limit."""

    concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    def shared_by(self, processes: int) -> Allowed:
        """The part of each limit for one of so many processes; at least 1."""

        def part(limit: int | None) -> int | None:
            return None if limit is None else max(1, limit // processes)

        return Allowed(
            concurrency=part(self.concurrency),
            requests_per_minute=part(self.requests_per_minute),
            tokens_per_minute=part(self.tokens_per_minute),
        )


@dataclass(slots=True)
class Taken:
    """The part of a window that one request uses."""

    at: float
    amount: int


@dataclass(slots=True)
class Window:
    """At most `limit` in any 60 seconds; to be used by one thread at a time."""

    limit: int | None
    """None: there is no limit."""
    _taken: deque[Taken] = field(default_factory=deque)

    def wait_s(self, amount: int, now: float) -> float:
        """Seconds until `amount` fits; an amount above the limit counts as the limit."""
        if self.limit is None:
            return 0.0
        while self._taken and self._taken[0].at <= now - WINDOW_S:
            self._taken.popleft()
        room = self.limit - sum(taken.amount for taken in self._taken)
        wait = 0.0
        for taken in self._taken:
            if room >= min(amount, self.limit):
                break
            room += taken.amount
            wait = taken.at + WINDOW_S - now + ROUNDING_S
        return wait

    def take(self, amount: int, now: float) -> Taken:
        """Use this amount. It can be corrected later."""
        taken = Taken(now, amount if self.limit is None else min(amount, self.limit))
        if self.limit is not None:
            self._taken.append(taken)
        return taken


class Limits(Protocol):
    """What a judge waits for before each request."""

    @property
    def clock(self) -> Clock:
        """By which it waits."""
        ...

    def permit(self, tokens: int, until: float) -> contextlib.AbstractContextManager[Taken]:
        """One request of about so many tokens, inside the block, which corrects `amount`.

        Raises `NoRoomError` where it would have to wait until after `until`.
        """
        ...


class ProcessLimits:
    """The limits of one process; they can be used by several threads."""

    def __init__(self, allowed: Allowed, clock: Clock) -> None:
        self.clock = clock
        self._room = threading.Semaphore(allowed.concurrency or MANY)
        self._requests = Window(allowed.requests_per_minute)
        self._tokens = Window(allowed.tokens_per_minute)
        self._windows = threading.Lock()

    @contextlib.contextmanager
    def permit(self, tokens: int, until: float) -> Iterator[Taken]:
        """See `Limits.permit`."""
        if not self._room.acquire(timeout=max(0.0, until - self.clock.now())):
            raise NoRoomError("concurrency leaves no room for a request in time")
        try:
            yield self._wait_for(tokens, until)
        finally:
            self._room.release()

    def _wait_for(self, tokens: int, until: float) -> Taken:
        while True:
            with self._windows:
                now = self.clock.now()
                waits = self._requests.wait_s(1, now), self._tokens.wait_s(tokens, now)
                if max(waits) <= 0:
                    self._requests.take(1, now)
                    return self._tokens.take(tokens, now)
            if now + max(waits) > until:
                name = "requests_per_minute" if waits[0] >= waits[1] else "tokens_per_minute"
                raise NoRoomError(f"{name} leaves no room for a request in time")
            self.clock.sleep(max(waits))
