"""What calls rewards somewhere else, and which of them work beside each other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

from mortal_steps.rewards.calling.calls import CallArguments, Outcome

T = TypeVar("T")


class Host(Protocol):
    """Calls rewards somewhere else."""

    def start(self) -> None:
        """Load them, unless that is done; raises `RewardError`."""
        ...

    def turns(self) -> list[list[str]]:
        """In which order they are called; those of one turn are called together."""
        ...

    def call(
        self, names: Sequence[str], arguments: CallArguments, *, timeout_s: float
    ) -> dict[str, Outcome]:
        """What comes of those of one turn."""
        ...

    def release(self) -> None:
        """Give back what would outlive `close`."""
        ...

    def close(self) -> None:
        """End what was started."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Track:
    """Rewards that are called beside those of other tracks.

    A track has one host, which is asked for the whole shard. With `by_problem` it has one reward,
    which is asked for each problem alone, in as many `hosts` at a time as there are.
    """

    names: Sequence[str]
    hosts: Sequence[Host]
    by_problem: bool = False


class HostInThread:
    """A host with a thread of its own, so that any thread may ask it, one at a time: a process ends
    with the thread that started it (see `HostProcess`)."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reward-host")

    def start(self) -> None:
        """See `Host`; so for all."""
        self._there(self._host.start)

    def turns(self) -> list[list[str]]:
        return self._there(self._host.turns)

    def call(
        self, names: Sequence[str], arguments: CallArguments, *, timeout_s: float
    ) -> dict[str, Outcome]:
        return self._there(
            functools.partial(self._host.call, names, arguments, timeout_s=timeout_s)
        )

    def release(self) -> None:
        self._there(self._host.release)

    def close(self) -> None:
        self._there(self._host.close)

    def _there(self, work: Callable[[], T]) -> T:
        return self._thread.submit(work).result()
