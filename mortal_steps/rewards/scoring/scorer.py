"""Scores of a shard: functions that fail are called again, then the run stops or problems are
masked, as `[rewards]` says.

A masked problem has None from every function for each of its completions, and TRL leaves such
completions out. None from the failing function alone would not do: the weighted sum of the others
would stand, and miss that part as if it were 0.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from mortal_steps.config import RewardsConfig
from mortal_steps.errors import RewardError
from mortal_steps.rewards.base import TrainerState
from mortal_steps.rewards.calling.calls import CallFailure
from mortal_steps.rewards.scoring.assignments import Assignment
from mortal_steps.rewards.scoring.jobs import Found, Part, StoppedError, Work, jobs_of
from mortal_steps.types import GeneratedShard, RewardFailure


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """The results of all functions for a shard."""

    rewards: Sequence[Sequence[Mapping[str, float | None]]]
    """Per group, per completion: score of each function; None where it abstained or is masked."""
    metrics: Mapping[str, float]
    """Mean of each metric logged."""
    extra: Mapping[str, Sequence[Any]]
    """Columns logged beside the completions."""
    failures: tuple[RewardFailure, ...]
    """The masked problems, and why they are masked."""
    failed_calls: Mapping[str, int]
    """Calls that failed, by function."""
    seconds: Mapping[str, float]
    """How long the calls took, those that failed included, by function; where several processes
    called one beside each other, the longest."""


class Scorer:
    """Scores shards with the rewards `names`, in this order, in the hosts that they are assigned
    to."""

    def __init__(
        self, assignments: Sequence[Assignment], names: Sequence[str], config: RewardsConfig
    ) -> None:
        self._assignments = assignments
        self._names = names
        self._config = config

    def start(self) -> None:
        """Import the rewards; raises `RewardError` if one cannot be imported."""
        for name in self._names:
            if self._names.count(name) > 1:
                raise RewardError(
                    f"[rewards]: {name!r} stands there twice; write it once and give it a weight, "
                    "or give each term a `name`"
                )
        for assignment in self._assignments:
            assignment.hosts[0].start()  # further ones start at the first need

    def score(self, shard: GeneratedShard, trainer_state: TrainerState) -> Scores:
        """Call each function once on all completions of the shard, or on those of each problem, and
        what fails again.

        Raises `RewardError` for a function that keeps failing, unless failures are masked; and the
        `MortalError` that a function raised.
        """
        work = Work(shard=shard, trainer_state=trainer_state, config=self._config)
        jobs = [job for each in self._assignments for job in jobs_of(each, work)]
        found = [jobs[0]()] if len(jobs) == 1 else _beside_each_other(jobs, work.stopped)
        return _put_together(shard, self._names, found)

    def dry_run(self, shard: GeneratedShard, trainer_state: TrainerState) -> None:
        """Raise `RewardError` if a reward fails, at once and whatever `rewards.on_error` says."""
        once = self._config.model_copy(update={"retries": 0, "on_error": "raise"})
        Scorer(self._assignments, self._names, once).score(shard, trainer_state)

    def close(self) -> None:
        """End the hosts, which otherwise end with this process."""
        for host in (host for each in self._assignments for host in each.hosts):
            host.release()
            host.close()


def _beside_each_other(
    jobs: Sequence[Callable[[], Found]], stopped: threading.Event
) -> list[Found]:
    """Return the result of each call. After an error, running calls end and no other begins."""

    def run(job: Callable[[], Found]) -> Found:
        try:
            return job()
        except BaseException:
            stopped.set()
            raise

    with ThreadPoolExecutor(len(jobs), thread_name_prefix="scoring") as threads:
        running = [threads.submit(run, job) for job in jobs]
        try:
            errors = [each.exception() for each in running]
        except BaseException:  # this process is to end
            stopped.set()
            raise
    for error in errors:
        if error is not None and not isinstance(error, StoppedError):
            raise error
    return [each.result() for each in running]


def _put_together(shard: GeneratedShard, names: Sequence[str], found: Sequence[Found]) -> Scores:
    parts = {name: _in_order(name, found) for name in names}
    failures = tuple(_failures(parts))
    masked = {failure.problem_id for failure in failures}
    columns = [[score for part in parts[name] for score in part.answer.scores] for name in parts]
    rows = (dict(zip(parts, row, strict=True)) for row in zip(*columns, strict=True))
    scored = [[next(rows) for _ in group.completions] for group in shard.groups]
    nothing = dict.fromkeys(parts)
    failed: Counter[str] = sum((each.attempts.failed for each in found), Counter())
    return Scores(
        rewards=[
            [nothing] * len(scores) if group.problem.id in masked else scores
            for group, scores in zip(shard.groups, scored, strict=True)
        ],
        metrics=_mean_metrics(parts),
        extra=_extra_columns(parts),
        failures=failures,
        failed_calls=dict(sorted(failed.items())),
        seconds={
            name: max(each.attempts.seconds.get(name, 0.0) for each in found) for name in parts
        },
    )


def _in_order(name: str, found: Sequence[Found]) -> list[Part]:
    """Return the results of a function, in the order of its problems."""
    parts = [item for each in found for item in each.parts.get(name, {}).items()]
    return [part for _, part in sorted(parts, key=lambda item: item[0])]


def _failures(parts: Mapping[str, Sequence[Part]]) -> Iterator[RewardFailure]:
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


def _mean_metrics(parts: Mapping[str, Sequence[Part]]) -> dict[str, float]:
    seen: dict[str, list[float]] = {}
    for part in itertools.chain.from_iterable(parts.values()):
        for name, values in part.answer.metrics.items():
            seen.setdefault(name, []).extend(values)
    return {name: math.fsum(values) / len(values) for name, values in sorted(seen.items())}


def _extra_columns(parts: Mapping[str, Sequence[Part]]) -> dict[str, list[Any]]:
    """Return each function's columns; None for the completions that a function failed on.

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
