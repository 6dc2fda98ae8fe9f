"""Calls the functions of one host for one shard, and repeats calls that fail."""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from mortal_steps.config import RewardsConfig
from mortal_steps.rewards.calling.calls import CallArguments, CallFailure, CallScores, Outcome
from mortal_steps.rewards.scoring.hosts import Host
from mortal_steps.types import GeneratedGroup

FIRST_DELAY_S = 0.25
"""Seconds before the first repetition; doubled before each further one."""

LONGEST_DELAY_S = 10.0

OF_ONE_PROCESS = frozenset({"exception", "invalid", "sandbox"})
"""Kinds of failure that may be caused by what an earlier call did to the process, such as using up
its file descriptors. Other kinds end the process, or are a judge's."""

logger = logging.getLogger(__name__)


class StoppedError(Exception):
    """The failure of another host has ended the scoring of the shard."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A function's result for some groups of the shard."""

    groups: Sequence[GeneratedGroup]
    outcome: Outcome
    attempts: int = 1

    @property
    def answer(self) -> CallScores:
        """The scores; if there are none, None for every completion."""
        if isinstance(self.outcome, CallScores):
            return self.outcome
        size = sum(len(group.completions) for group in self.groups)
        return CallScores(scores=[None] * size, metrics={}, extra={})


class Attempts:
    """Calls functions of one host and counts the calls.

    Once `stopped` is set, by the thread that scores another part of the shard, no further call
    begins and `StoppedError` is raised.
    """

    def __init__(self, host: Host, config: RewardsConfig, stopped: threading.Event) -> None:
        self._host = host
        self._config = config
        self._stopped = stopped
        self.failed: Counter[str] = Counter()
        """Calls that failed, by function."""
        self.seconds: defaultdict[str, float] = defaultdict(float)
        """How long calls took, by function."""

    def with_retries(self, names: Sequence[str], arguments: CallArguments) -> dict[str, Outcome]:
        """Return the last outcome of each function of a round; the last attempt is in a new
        process."""
        outcomes: dict[str, Outcome] = {}
        left = list(names)
        for attempt in range(1 + self._config.retries):
            if attempt:
                self._stopped.wait(min(FIRST_DELAY_S * 2 ** (attempt - 1), LONGEST_DELAY_S))
                if attempt == self._config.retries and any(
                    may_be_the_process(outcomes[name]) for name in left
                ):
                    self._host.close()
            outcomes |= self.once(left, arguments)
            left = [name for name in left if isinstance(outcomes[name], CallFailure)]
            if not left:
                break
        return outcomes

    def in_new_process(self, name: str, arguments: CallArguments) -> Outcome:
        """Make one more call in a new process, which earlier calls cannot have affected."""
        self._host.close()
        return self.once([name], arguments)[name]

    def once(self, names: Sequence[str], arguments: CallArguments) -> dict[str, Outcome]:
        """Make one call of each function; raises the `MortalError` that a function raised."""
        if self._stopped.is_set():
            raise StoppedError
        outcomes = self._host.call(names, arguments, timeout_s=self._config.timeout_s)
        for name, outcome in outcomes.items():
            self.seconds[name] += outcome.seconds
            if isinstance(outcome, CallFailure):
                self.failed[name] += 1
                logger.warning("reward function %r %s\n%s", name, outcome.message, outcome.trace)
        return outcomes


def may_be_the_process(outcome: Outcome) -> bool:
    """Whether a new process might do better."""
    return isinstance(outcome, CallFailure) and outcome.kind in OF_ONE_PROCESS
