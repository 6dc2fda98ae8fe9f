"""Scores of a shard: functions that fail are called again, then the run stops or problems are
masked, as `[rewards]` says.

A masked problem has None from every function for each of its completions, and TRL leaves such
completions out. None from the failing function alone would not do: the weighted sum of the others
would stand, and miss that part as if it were 0.
"""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mortal_steps.config import RewardsConfig
from mortal_steps.errors import RewardError
from mortal_steps.rewards.base import TrainerState
from mortal_steps.rewards.calls import (
    CallArguments,
    CallFailure,
    CallScores,
    Outcome,
    arguments_of,
)
from mortal_steps.rewards.host_process import HostProcess
from mortal_steps.types import GeneratedGroup, GeneratedShard, RewardFailure

FIRST_DELAY_S = 0.25
"""Before the first further call; doubled before each next one."""

LONGEST_DELAY_S = 10.0

OF_ONE_PROCESS = frozenset({"exception", "invalid", "sandbox"})
"""Failures that may come from what an earlier call did to the process, such as using up its
descriptors. The others end it, or are a judge's."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """What the functions said about a shard."""

    rewards: Sequence[Sequence[Mapping[str, float | None]]]
    """Per group, per completion: score of each function; None where it abstained or is masked."""
    metrics: Mapping[str, float]
    """Mean of each metric logged."""
    extra: Mapping[str, Sequence[Any]]
    """Columns logged beside the completions."""
    failures: tuple[RewardFailure, ...]
    """What was masked, and why."""
    failed_calls: Mapping[str, int]
    """Calls that failed, by function."""
    seconds: Mapping[str, float]
    """How long the calls took, those that failed included, by function."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    """What a function said about some groups of the shard."""

    groups: Sequence[GeneratedGroup]
    outcome: Outcome
    attempts: int = 1

    @property
    def answer(self) -> CallScores:
        """The scores, or where there are none, None for every completion."""
        if isinstance(self.outcome, CallScores):
            return self.outcome
        size = sum(len(group.completions) for group in self.groups)
        return CallScores(scores=[None] * size, metrics={}, extra={})


class _Calls:
    """The calls that a shard has taken, by function."""

    def __init__(self) -> None:
        self.failed: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)


class Scorer:
    """Scores shards with the functions of a host, called `names` in this order."""

    def __init__(self, host: HostProcess, names: Sequence[str], config: RewardsConfig) -> None:
        self._host = host
        self._names = names
        self._config = config

    def score(self, shard: GeneratedShard, trainer_state: TrainerState) -> Scores:
        """Call each function once on all completions of the shard, and what fails again.

        Raises `RewardError` for a function that keeps failing, unless failures are masked; and the
        `MortalError` that a function raised.
        """
        whole = arguments_of(shard.groups, trainer_state)
        calls = _Calls()
        parts: dict[str, list[_Part]] = {}
        for turn in self._host.turns():
            for name, outcome in self._call_with_retries(turn, whole, calls).items():
                part = _Part(groups=shard.groups, outcome=outcome, attempts=calls.failed[name])
                parts[name] = [part]
                if isinstance(outcome, CallScores):
                    continue
                if self._config.on_error == "raise":
                    raise _reward_error(name, outcome, shard, part.attempts)
                if len(shard.groups) > 1:
                    parts[name] = self._isolate(name, part, trainer_state, calls)
        return _put_together(shard, {name: parts[name] for name in self._names}, calls)

    def _call_with_retries(
        self, turn: Sequence[str], arguments: CallArguments, calls: _Calls
    ) -> dict[str, Outcome]:
        """The last outcome of each function of a turn; the last attempt is in a new process."""
        outcomes: dict[str, Outcome] = {}
        left = list(turn)
        for attempt in range(1 + self._config.retries):
            if attempt:
                time.sleep(min(FIRST_DELAY_S * 2 ** (attempt - 1), LONGEST_DELAY_S))
                if attempt == self._config.retries and any(
                    _may_be_the_process(outcomes[name]) for name in left
                ):
                    self._host.close()
            outcomes |= self._call(left, arguments, calls)
            left = [name for name in left if isinstance(outcomes[name], CallFailure)]
            if not left:
                break
        return outcomes

    def _isolate(
        self, name: str, whole: _Part, trainer_state: TrainerState, calls: _Calls
    ) -> list[_Part]:
        """Call a function that failed on the shard for each problem alone: which are to blame?

        Those that fail until the last one may suffer from what another did to the process, so each
        of them is called once more in a new one.
        """

        def call(group: GeneratedGroup, attempts: int) -> _Part:
            alone = arguments_of([group], trainer_state)
            outcome = self._call([name], alone, calls)[name]
            return _Part(groups=[group], outcome=outcome, attempts=attempts)

        parts = [call(group, whole.attempts + 1) for group in whole.groups]
        for place in reversed(range(len(parts))):
            if not _may_be_the_process(parts[place].outcome):
                break
            self._host.close()
            parts[place] = call(whole.groups[place], whole.attempts + 2)
        return parts

    def _call(
        self, names: Sequence[str], arguments: CallArguments, calls: _Calls
    ) -> dict[str, Outcome]:
        outcomes = self._host.call(names, arguments, timeout_s=self._config.timeout_s)
        for name, outcome in outcomes.items():
            calls.seconds[name] += outcome.seconds
            if isinstance(outcome, CallFailure):
                calls.failed[name] += 1
                logger.warning("reward function %r %s\n%s", name, outcome.message, outcome.trace)
        return outcomes


def _may_be_the_process(outcome: Outcome) -> bool:
    return isinstance(outcome, CallFailure) and outcome.kind in OF_ONE_PROCESS


def _put_together(
    shard: GeneratedShard, parts: Mapping[str, Sequence[_Part]], calls: _Calls
) -> Scores:
    failures = tuple(_failures(parts))
    masked = {failure.problem_id for failure in failures}
    columns = [[score for part in parts[name] for score in part.answer.scores] for name in parts]
    rows = (dict(zip(parts, row, strict=True)) for row in zip(*columns, strict=True))
    scored = [[next(rows) for _ in group.completions] for group in shard.groups]
    nothing = dict.fromkeys(parts)
    return Scores(
        rewards=[
            [nothing] * len(scores) if group.problem.id in masked else scores
            for group, scores in zip(shard.groups, scored, strict=True)
        ],
        metrics=_mean_metrics(parts),
        extra=_extra_columns(parts),
        failures=failures,
        failed_calls=dict(sorted(calls.failed.items())),
        seconds={name: calls.seconds[name] for name in parts},
    )


def _failures(parts: Mapping[str, Sequence[_Part]]) -> Iterator[RewardFailure]:
    for name, parts_of_function in parts.items():
        for part in parts_of_function:
            if isinstance(part.outcome, CallFailure):
                for group in part.groups:
                    yield RewardFailure(
                        function=name,
                        problem_id=group.problem.id,
                        num_completions=len(group.completions),
                        kind=part.outcome.kind,
                        message=part.outcome.message,
                        attempts=part.attempts,
                    )


def _mean_metrics(parts: Mapping[str, Sequence[_Part]]) -> dict[str, float]:
    seen: dict[str, list[float]] = {}
    for part in itertools.chain.from_iterable(parts.values()):
        for name, values in part.answer.metrics.items():
            seen.setdefault(name, []).extend(values)
    return {name: math.fsum(values) / len(values) for name, values in sorted(seen.items())}


def _extra_columns(parts: Mapping[str, Sequence[_Part]]) -> dict[str, list[Any]]:
    """Each function's columns; None for the completions that a function failed on.

    Of two functions with a column of the same name, the later one's is `<function>/<column>`.
    """
    columns: dict[str, list[Any]] = {}
    for function, parts_of_function in parts.items():
        answers = [part.answer for part in parts_of_function]
        for name in dict.fromkeys(name for answer in answers for name in answer.extra):
            column = columns.setdefault(f"{function}/{name}" if name in columns else name, [])
            for answer in answers:
                column.extend(answer.extra.get(name, [None] * len(answer.scores)))
    return dict(sorted(columns.items()))


def _reward_error(
    name: str, failure: CallFailure, shard: GeneratedShard, attempts: int
) -> RewardError:
    ids = [group.problem.id for group in shard.groups]
    problems = ids[0] if len(ids) == 1 else f"{ids[0]} ... {ids[-1]} ({len(ids)} problems)"
    tries = f", {attempts} times in a row" if attempts > 1 else ""
    return RewardError(
        f"reward function {name!r} {failure.message} on step {shard.step}, problem {problems} "
        f"({failure.kind}{tries}). {failure.remedy}\n{failure.trace}".rstrip()
    )
