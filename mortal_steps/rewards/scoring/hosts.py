"""What calls rewards somewhere else, and which of them work beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mortal_steps.rewards.calling.calls import CallArguments, Outcome


class Host(Protocol):
    """Calls rewards somewhere else: a `RewardHost`. For one thread at a time."""

    def start(self) -> None:
        """Load them, unless that is done; raises `RewardError`."""
        ...

    def rounds(self) -> list[list[str]]:
        """Return in which order they are called; those of one round are called together."""
        ...

    def call(
        self, names: Sequence[str], arguments: CallArguments, *, timeout_s: float
    ) -> dict[str, Outcome]:
        """Return what comes of those of one round."""
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
