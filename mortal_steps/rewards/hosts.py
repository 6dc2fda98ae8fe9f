"""The processes that a configuration's rewards are called in: one for the functions, and one for
each reward model."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Protocol

from mortal_steps.rewards.calls import CallArguments, Outcome


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


class Hosts:
    """Several as one; `hosts` has that of each reward by its name."""

    def __init__(self, hosts: Mapping[str, Host]) -> None:
        self._host_of = dict(hosts)
        self._all = list(dict.fromkeys(self._host_of.values()))

    def start(self) -> None:
        """See `Host`."""
        for host in self._all:
            host.start()

    def turns(self) -> list[list[str]]:
        """See `Host`."""
        return list(itertools.chain.from_iterable(host.turns() for host in self._all))

    def call(
        self, names: Sequence[str], arguments: CallArguments, *, timeout_s: float
    ) -> dict[str, Outcome]:
        """See `Host`."""
        return self._host_of[names[0]].call(names, arguments, timeout_s=timeout_s)

    def release(self) -> None:
        """See `Host`."""
        for host in self._all:
            host.release()

    def close(self) -> None:
        """See `Host`."""
        for host in self._all:
            host.close()
