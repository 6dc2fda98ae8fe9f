"""Score a shard in jobs that run beside each other, one for each host.

A job calls its functions on the whole shard. If a function is called for each problem alone, its
jobs take one problem after another from those that are left, so chance decides which host scores
which problem. The results are put into the order of the problems.
"""

import logging
import queue
import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
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


class Job:
    """Calls functions of one host for a shard, and keeps what came of it."""

    def __init__(self, host: RewardHost, names: Sequence[str], work: Work) -> None:
        self._host = host
        self._names = names
        self._work = work
        self.parts: dict[str, dict[int, Part]] = {name: {} for name in names}
        """Function -> index of the part's first problem in the shard -> part."""
        self.failed: Counter[str] = Counter()
        """Calls that failed, by function."""
        self.seconds: defaultdict[str, float] = defaultdict(float)
        """How long calls took, by function."""
        self._changing: dict[str, None] = {}
        """Functions that changed their arguments, in the order of their calls: later ones are
        called on what these leave."""

    def score_whole(self) -> None:
        """Call each function on the whole shard; as in TRL, async ones last and in parallel. Raises
        `RewardError` for one that keeps failing, unless masked, and functions' `MortalError`."""
        groups = self._work.shard.groups
        whole = self._arguments(groups)
        in_parallel = self._host.async_of(self._names)
        first: dict[str, Outcome] = {}
        for name in sorted(self._names, key=in_parallel.__contains__):  # plain functions first
            if name in in_parallel and not first:
                first = self._call(in_parallel, whole)
            outcome = self._with_retries(name, whole, first.get(name))
            self._keep(name, 0, groups, outcome, self.failed[name])
            if isinstance(outcome, CallFailure) and len(groups) > 1:
                self.parts[name] = {}
                self._isolate(name)
            elif self._may_be_spoilt(outcome):
                self._keep(name, 0, groups, self._in_new_process(name, whole), self.failed[name])

    def score_problems(self, waiting: queue.SimpleQueue[int]) -> None:
        """Call the one function on one problem after another until none is left; raises as
        `score_whole` does.

        Whether a function fails on a problem must not depend on the problems before it. So the last
        attempt is made in a new process, even if no retries are configured.
        """
        (name,) = self._names
        while True:
            try:
                index = waiting.get_nowait()
            except queue.Empty:
                return
            groups = [self._work.shard.groups[index]]
            arguments = self._arguments(groups)
            before = self.failed[name]
            outcome = self._with_retries(name, arguments)
            if self._may_be_spoilt(outcome):
                outcome = self._in_new_process(name, arguments)
            self._keep(name, index, groups, outcome, self.failed[name] - before)

    def _isolate(self, name: str) -> None:
        """Call a function that failed on the shard once more for each problem alone, to find out on
        which problems it fails. A call may spoil the process for all calls after it. So if the last
        calls failed, each of them is repeated in a new process."""
        failed = self.failed[name]
        alone = [([group], self._arguments([group])) for group in self._work.shard.groups]
        for index, (groups, arguments) in enumerate(alone):
            self._keep(name, index, groups, self._once(name, arguments), failed + 1)
        for index, (groups, arguments) in reversed(list(enumerate(alone))):
            if not _may_be_the_process(self.parts[name][index].outcome):
                break
            self._keep(name, index, groups, self._in_new_process(name, arguments), failed + 2)

    def _arguments(self, groups: Sequence[GeneratedGroup]) -> CallArguments:
        return arguments_of(
            groups, self._work.trainer_state, of_prompts=self._host.takes_prompt_ids
        )

    def _keep(
        self,
        name: str,
        index: int,
        groups: Sequence[GeneratedGroup],
        outcome: Outcome,
        attempts: int,
    ) -> None:
        self.parts[name][index] = Part(groups=groups, outcome=outcome, attempts=attempts)
        if isinstance(outcome, CallFailure) and self._work.config.on_error == "raise":
            raise _error(name, self._work.shard.step, self.parts[name][index], outcome)

    def _with_retries(
        self, name: str, arguments: CallArguments, first: Outcome | None = None
    ) -> Outcome:
        """Return a function's last outcome; the last attempt is in a new process."""
        outcome = first or self._once(name, arguments)
        delays_s = backoff(FIRST_DELAY_S, LONGEST_DELAY_S)
        for left in reversed(range(self._work.config.retries)):
            if isinstance(outcome, CallScores):
                break
            self._work.stopped.wait(next(delays_s))
            if left == 0 and _may_be_the_process(outcome):
                self._host.close()
            outcome = self._once(name, arguments)
        return outcome

    def _may_be_spoilt(self, outcome: Outcome) -> bool:
        """Return whether an earlier call may have made this one fail: its process was not new."""
        return self._work.config.retries == 0 and _may_be_the_process(outcome)

    def _in_new_process(self, name: str, arguments: CallArguments) -> Outcome:
        """Make one more call in a new process, which earlier calls cannot have affected."""
        self._host.close()
        return self._once(name, arguments)

    def _once(self, name: str, arguments: CallArguments) -> Outcome:
        return self._call([name], arguments)[name]

    def _call(self, names: Sequence[str], arguments: CallArguments) -> dict[str, Outcome]:
        """Call functions once; raises their `MortalError`, or `StoppedError`."""
        if self._work.stopped.is_set():
            raise StoppedError
        if not names:
            return {}
        outcomes = self._host.call(
            names,
            arguments,
            timeout_s=self._work.config.timeout_s,
            after=[name for name in self._changing if name not in names],
        )
        for name, outcome in outcomes.items():
            self.seconds[name] += outcome.seconds
            if isinstance(outcome, CallScores) and outcome.changed_arguments:
                self._changing[name] = None
            if isinstance(outcome, CallFailure):
                self.failed[name] += 1
                said = (name, outcome.message, outcome.remedy, outcome.trace)
                logger.warning("reward function %r %s. %s\n%s", *said)
        return outcomes


def _may_be_the_process(outcome: Outcome) -> bool:
    return isinstance(outcome, CallFailure) and outcome.kind in OF_ONE_PROCESS


def _error(name: str, step: int, part: Part, failure: CallFailure) -> RewardError:
    """Return what to raise for a function that keeps failing."""
    ids = [group.problem.id for group in part.groups]
    of_problems = f"problem {ids[0]}" if len(ids) == 1 else f"problems {ids[0]} ... {ids[-1]}"
    tries = f", {part.attempts} times in a row" if part.attempts > 1 else ""
    where = f" ({failure.place})" if failure.place else ""
    return RewardError(
        f"reward function {name!r} {failure.message}{where} on step {step}, {of_problems}{tries}. "
        f"{failure.remedy}\n{failure.trace}".rstrip()
    )
