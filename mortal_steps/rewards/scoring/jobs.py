"""Score a shard in jobs that run beside each other, one for each host.

A job calls its functions on the whole shard. If a function is called for each problem alone, its
jobs take one problem after another from those that are left, so chance decides which host scores
which problem. The results are put into the order of the problems.
"""

from __future__ import annotations

import functools
import logging
import queue
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mortal_steps.config import RewardsConfig
from mortal_steps.errors import RewardError
from mortal_steps.rewards.base import TrainerState
from mortal_steps.rewards.calling.calls import (
    CallArguments,
    CallFailure,
    CallScores,
    Outcome,
    arguments_of,
)
from mortal_steps.rewards.host import RewardHost
from mortal_steps.rewards.scoring.assignments import Assignment
from mortal_steps.system.retry import backoff
from mortal_steps.types import GeneratedGroup, GeneratedShard

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


@dataclass(frozen=True, kw_only=True)
class Work:
    """A shard that is being scored."""

    shard: GeneratedShard
    trainer_state: TrainerState
    config: RewardsConfig
    stopped: threading.Event = field(default_factory=threading.Event)
    """Set when a job has failed."""

    def arguments(self, groups: Sequence[GeneratedGroup]) -> CallArguments:
        """Return the arguments for a call with these groups."""
        return arguments_of(groups, self.trainer_state)

    def error(
        self, name: str, failure: CallFailure, groups: Sequence[GeneratedGroup], attempts: int
    ) -> RewardError:
        """Return what to raise for a function that keeps failing."""
        ids = [group.problem.id for group in groups]
        problems = ids[0] if len(ids) == 1 else f"{ids[0]} ... {ids[-1]} ({len(ids)} problems)"
        tries = f", {attempts} times in a row" if attempts > 1 else ""
        place = f" ({failure.place})" if failure.place else ""
        return RewardError(
            f"reward function {name!r} {failure.message}{place} on step {self.shard.step}, problem "
            f"{problems} ({failure.kind}{tries}). {failure.remedy}\n{failure.trace}".rstrip()
        )


class Attempts:
    """Calls functions of one host for a shard, and counts the calls."""

    def __init__(self, host: RewardHost, work: Work) -> None:
        self._host = host
        self._work = work
        self.failed: Counter[str] = Counter()
        """Calls that failed, by function."""
        self.seconds: defaultdict[str, float] = defaultdict(float)
        """How long calls took, by function."""

    def with_retries(self, name: str, arguments: CallArguments) -> Outcome:
        """Return the last outcome of a function; the last attempt is in a new process."""
        outcome = self.once(name, arguments)
        delays_s = backoff(FIRST_DELAY_S, LONGEST_DELAY_S)
        for left in reversed(range(self._work.config.retries)):
            if isinstance(outcome, CallScores):
                break
            self._work.stopped.wait(next(delays_s))
            if left == 0 and may_be_the_process(outcome):
                self._host.close()
            outcome = self.once(name, arguments)
        return outcome

    def in_new_process(self, name: str, arguments: CallArguments) -> Outcome:
        """Make one more call in a new process, which earlier calls cannot have affected."""
        self._host.close()
        return self.once(name, arguments)

    def once(self, name: str, arguments: CallArguments) -> Outcome:
        """Call a function once. Raises the `MortalError` that it raised, and `StoppedError` after a
        failure in another thread."""
        if self._work.stopped.is_set():
            raise StoppedError
        outcome = self._host.call(name, arguments, timeout_s=self._work.config.timeout_s)
        self.seconds[name] += outcome.seconds
        if isinstance(outcome, CallFailure):
            self.failed[name] += 1
            logger.warning("reward function %r %s\n%s", name, outcome.message, outcome.trace)
        return outcome


def may_be_the_process(outcome: Outcome) -> bool:
    """Return whether a new process might do better."""
    return isinstance(outcome, CallFailure) and outcome.kind in OF_ONE_PROCESS


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The results of a job."""

    parts: Mapping[str, Mapping[int, Part]]
    """Function -> index of the part's first problem in the shard -> part."""
    attempts: Attempts


def jobs_of(assignment: Assignment, work: Work) -> list[Callable[[], Found]]:
    """One job for each host that has something to do.

    A job raises `RewardError` for a function that keeps failing, unless failures are masked, and
    the `MortalError` that a function raised.
    """
    if not assignment.by_problem:
        (host,) = assignment.hosts
        return [functools.partial(_whole_shard, host, assignment.names, work)]
    (name,) = assignment.names
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in range(len(work.shard.groups)):
        waiting.put(index)
    hosts = assignment.hosts[: len(work.shard.groups)]
    return [functools.partial(_problems, name, host, waiting, work) for host in hosts]


def _whole_shard(host: RewardHost, names: Sequence[str], work: Work) -> Found:
    groups, whole = work.shard.groups, work.arguments(work.shard.groups)
    attempts = Attempts(host, work)
    parts: dict[str, dict[int, Part]] = {}
    host.begin(names, whole, timeout_s=work.config.timeout_s)
    for name in names:
        outcome = attempts.with_retries(name, whole)
        part = Part(groups=groups, outcome=outcome, attempts=attempts.failed[name])
        parts[name] = {0: part}
        if isinstance(outcome, CallScores):
            continue
        if work.config.on_error == "raise":
            raise work.error(name, outcome, groups, part.attempts)
        if len(groups) > 1:
            parts[name] = _isolated(name, part.attempts, attempts, work)
    return Found(parts=parts, attempts=attempts)


def _isolated(name: str, failed: int, attempts: Attempts, work: Work) -> dict[int, Part]:
    """Call a function that failed on the shard once more for each problem alone, to find out on
    which problems it fails.

    A call may spoil the process for all calls after it. So if the last calls failed, each of them
    is repeated in a new process.
    """
    parts: dict[int, Part] = {}
    for index, group in enumerate(work.shard.groups):
        outcome = attempts.once(name, work.arguments([group]))
        parts[index] = Part(groups=[group], outcome=outcome, attempts=failed + 1)
    for index, group in reversed(list(enumerate(work.shard.groups))):
        if not may_be_the_process(parts[index].outcome):
            break
        outcome = attempts.in_new_process(name, work.arguments([group]))
        parts[index] = Part(groups=[group], outcome=outcome, attempts=failed + 2)
    return parts


def _problems(name: str, host: RewardHost, waiting: queue.SimpleQueue[int], work: Work) -> Found:
    """Score one problem after another until none is left.

    Whether a function fails on a problem must not depend on the problems before it. So the last
    attempt is made in a new process, even if no retries are configured.
    """
    attempts = Attempts(host, work)
    parts: dict[int, Part] = {}
    while True:
        try:
            index = waiting.get_nowait()
        except queue.Empty:
            return Found(parts={name: parts}, attempts=attempts)
        groups = [work.shard.groups[index]]
        arguments = work.arguments(groups)
        before = attempts.failed[name]
        outcome = attempts.with_retries(name, arguments)
        if work.config.retries == 0 and may_be_the_process(outcome):
            outcome = attempts.in_new_process(name, arguments)
        tries = attempts.failed[name] - before
        parts[index] = Part(groups=groups, outcome=outcome, attempts=tries)
        if isinstance(outcome, CallFailure) and work.config.on_error == "raise":
            raise work.error(name, outcome, groups, tries)
