"""A shard's scoring as jobs that run beside each other, one for each host.

A job calls its functions on the whole shard. If a function is called for each problem alone, its
jobs take one problem after another from those that are left, so chance decides which host scores
which problem. The results are put into the order of the problems.
"""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mortal_steps.config import RewardsConfig
from mortal_steps.errors import RewardError
from mortal_steps.rewards.base import TrainerState
from mortal_steps.rewards.calling.calls import CallArguments, CallFailure, CallScores, arguments_of
from mortal_steps.rewards.scoring.attempts import Attempts, Part, may_be_the_process
from mortal_steps.rewards.scoring.hosts import Host, Track
from mortal_steps.types import GeneratedGroup, GeneratedShard


@dataclass(frozen=True, kw_only=True)
class Work:
    """A shard that is being scored."""

    shard: GeneratedShard
    trainer_state: TrainerState
    config: RewardsConfig
    stopped: threading.Event = field(default_factory=threading.Event)
    """Set when a job has failed."""

    def whole(self) -> CallArguments:
        """Arguments with all completions."""
        return arguments_of(self.shard.groups, self.trainer_state)

    def of_problem(self, place: int) -> CallArguments:
        """Arguments with the completions of one problem."""
        return arguments_of([self.shard.groups[place]], self.trainer_state)

    def attempts(self, host: Host) -> Attempts:
        """Calls of one host, and their number."""
        return Attempts(host, self.config, self.stopped)

    def error(
        self, name: str, failure: CallFailure, groups: Sequence[GeneratedGroup], attempts: int
    ) -> RewardError:
        """What to raise for a function that keeps failing."""
        ids = [group.problem.id for group in groups]
        problems = ids[0] if len(ids) == 1 else f"{ids[0]} ... {ids[-1]} ({len(ids)} problems)"
        tries = f", {attempts} times in a row" if attempts > 1 else ""
        place = f" ({failure.place})" if failure.place else ""
        return RewardError(
            f"reward function {name!r} {failure.message}{place} on step {self.shard.step}, problem "
            f"{problems} ({failure.kind}{tries}). {failure.remedy}\n{failure.trace}".rstrip()
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """The results of a job."""

    parts: Mapping[str, Mapping[int, Part]]
    """Function -> place of the part's first problem in the shard -> part."""
    attempts: Attempts


def jobs_of(track: Track, work: Work) -> list[Callable[[], Found]]:
    """One job for each host that has something to do.

    A job raises `RewardError` for a function that keeps failing, unless failures are masked, and
    the `MortalError` that a function raised.
    """
    if not track.by_problem:
        (host,) = track.hosts
        return [functools.partial(_whole_shard, host, work, work.whole())]
    (name,) = track.names
    places: queue.SimpleQueue[int] = queue.SimpleQueue()
    for place in range(len(work.shard.groups)):
        places.put(place)
    hosts = track.hosts[: len(work.shard.groups)]
    return [functools.partial(_problems, name, host, places, work) for host in hosts]


def _whole_shard(host: Host, work: Work, whole: CallArguments) -> Found:
    groups = work.shard.groups
    attempts = work.attempts(host)
    parts: dict[str, dict[int, Part]] = {}
    for names in host.rounds():
        for name, outcome in attempts.with_retries(names, whole).items():
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
    for place, group in enumerate(work.shard.groups):
        outcome = attempts.once([name], work.of_problem(place))[name]
        parts[place] = Part(groups=[group], outcome=outcome, attempts=failed + 1)
    for place, group in reversed(list(enumerate(work.shard.groups))):
        if not may_be_the_process(parts[place].outcome):
            break
        outcome = attempts.in_new_process(name, work.of_problem(place))
        parts[place] = Part(groups=[group], outcome=outcome, attempts=failed + 2)
    return parts


def _problems(name: str, host: Host, places: queue.SimpleQueue[int], work: Work) -> Found:
    """Score one problem after another until none is left.

    Whether a function fails on a problem must not depend on the problems before it. So the last
    attempt is made in a new process, even if no retries are configured.
    """
    attempts = work.attempts(host)
    parts: dict[int, Part] = {}
    while True:
        try:
            place = places.get_nowait()
        except queue.Empty:
            return Found(parts={name: parts}, attempts=attempts)
        groups, arguments = [work.shard.groups[place]], work.of_problem(place)
        before = attempts.failed[name]
        outcome = attempts.with_retries([name], arguments)[name]
        if work.config.retries == 0 and may_be_the_process(outcome):
            outcome = attempts.in_new_process(name, arguments)
        tries = attempts.failed[name] - before
        parts[place] = Part(groups=groups, outcome=outcome, attempts=tries)
        if isinstance(outcome, CallFailure) and work.config.on_error == "raise":
            raise work.error(name, outcome, groups, tries)
