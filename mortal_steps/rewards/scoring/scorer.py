"""Scores of a shard: functions that fail are called again, then the run stops or problems are
masked, as `[rewards]` says.

A masked problem has None from every function for each of its completions, and TRL leaves such
completions out. None from the failing function alone would not do: the weighted sum of the others
would stand, and miss that part as if it were 0.
"""

import base64
import functools
import itertools
import math
import queue
import threading
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mortal_steps.config import RewardsConfig
from mortal_steps.errors import RewardError
from mortal_steps.rewards.base import TrainerState
from mortal_steps.rewards.calling.calls import CallFailure, CallScores
from mortal_steps.rewards.scoring.assignments import Assignment
from mortal_steps.rewards.scoring.episodes import (
    episode_metrics,
    failed_episodes,
    no_scores,
    scored_by_environments,
)
from mortal_steps.rewards.scoring.jobs import Job, Part, StoppedError, Work
from mortal_steps.types import (
    GeneratedShard,
    RewardedShard,
    RewardFailure,
)


class Scorer:
    """Scores shards with the rewards `names`, in order, in their hosts."""

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

    def score(
        self, shard: GeneratedShard, trainer_state: TrainerState, *, sha256: str
    ) -> tuple[RewardedShard, Mapping[str, float]]:
        """Call each function once on all completions of the shard, or on those of each problem, and
        what fails again. Return the scores of the generations with the digest `sha256`, and how
        long the calls of each function took, those that failed included; where several processes
        called one beside each other, the longest.

        Rewards that were computed beside an environment are copied. An episode whose environment
        failed has no scores.

        Raises `RewardError` for a function that keeps failing, unless failures are masked, and for
        one that needs an environment where there was none; and the `MortalError` that a function
        raised.
        """
        scored = scored_by_environments(shard, self._names)
        alone = self._called_alone()
        for name in self._names:
            if name not in scored and name not in alone:
                raise RewardError(
                    f"reward {name!r} is computed beside the environments of episodes, and the "
                    f"completions of {shard.groups[0].problem.id} have no score of it. Score "
                    "those of a run with [environment] (generations-*.parquet), or leave the "
                    "reward out"
                )
        return self._score(shard, trainer_state, scored, sha256)

    def _score(
        self,
        shard: GeneratedShard,
        trainer_state: TrainerState,
        scored: Mapping[str, Part],
        sha256: str,
    ) -> tuple[RewardedShard, Mapping[str, float]]:
        """Score a shard with the functions that are not in `scored`."""
        work = Work(shard=shard, trainer_state=trainer_state, config=self._config)
        jobs = [job for each in self._assignments for job in _jobs_of(each, work, scored)]
        _run_beside_each_other([run for _, run in jobs], work.stopped)
        done = [job for job, _ in jobs]
        called = [name for name in self._names if name not in scored]
        seconds = {name: max(job.seconds.get(name, 0.0) for job in done) for name in called}
        parts = {
            name: [scored[name]] if name in scored else _in_order(name, done)
            for name in self._names
        }
        return _put_together(shard, sha256, parts, done), seconds

    def dry_run(
        self, shard: GeneratedShard, trainer_state: TrainerState
    ) -> Mapping[str, Sequence[float | None]]:
        """Return the scores of each reward, completion after completion; those that need an
        environment are left out. Raises `RewardError` if a reward fails once, whatever
        `rewards.on_error` says."""
        once = self._config.model_copy(update={"retries": 0, "on_error": "raise"})
        alone = self._called_alone()
        others = {name: no_scores(shard) for name in self._names if name not in alone}
        found, _ = Scorer(self._assignments, self._names, once)._score(
            shard, trainer_state, others, ""
        )
        completions = [scores for group in found.rewards for scores in group]
        return {name: [each[name] for each in completions] for name in self._names if name in alone}

    def _called_alone(self) -> set[str]:
        """Return the rewards that are called without an environment."""
        return {
            name
            for each in self._assignments
            for name in set(each.names) - set(each.hosts[0].with_environments(each.names))
        }

    def close(self) -> None:
        """End the hosts, which otherwise end with this process."""
        for host in (host for each in self._assignments for host in each.hosts):
            host.release()
            host.close()


def _jobs_of(
    assignment: Assignment, work: Work, scored: Container[str]
) -> list[tuple[Job, Callable[[], None]]]:
    """Return a job for each host that has something to do, and what carries it out."""
    names = [name for name in assignment.names if name not in scored]
    jobs = [Job(host, names, work) for host in assignment.hosts if names]
    if not assignment.by_problem:
        return [(job, job.score_whole) for job in jobs]
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in range(len(work.shard.groups)):
        waiting.put(index)
    used = jobs[: len(work.shard.groups)]
    return [(job, functools.partial(job.score_problems, waiting)) for job in used]


def _run_beside_each_other(runs: Sequence[Callable[[], None]], stopped: threading.Event) -> None:
    """Carry out jobs. After an error, running calls end and no other begins."""
    if len(runs) <= 1:
        return next(iter(runs), lambda: None)()

    def run(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException:
            stopped.set()
            raise

    with ThreadPoolExecutor(len(runs), thread_name_prefix="scoring") as threads:
        running = [threads.submit(run, job) for job in runs]
        try:
            errors = [each.exception() for each in running]
        except BaseException:  # this process is to end
            stopped.set()
            raise
    for error in errors:
        if error is not None and not isinstance(error, StoppedError):
            raise error


def _put_together(
    shard: GeneratedShard,
    sha256: str,
    parts: Mapping[str, Sequence[Part]],
    jobs: Sequence[Job],
) -> RewardedShard:
    failures = tuple(_failures(parts))
    masked = {failure.problem_id for failure in failures}
    columns = [[score for part in parts[name] for score in part.answer.scores] for name in parts]
    rows = (dict(zip(parts, row, strict=True)) for row in zip(*columns, strict=True))
    scored = [[next(rows) for _ in group.completions] for group in shard.groups]
    nothing = dict.fromkeys(parts)
    failed: Counter[str] = sum((job.failed for job in jobs), Counter())
    return RewardedShard(
        step=shard.step,
        shard=shard.shard,
        generation_sha256=sha256,
        rewards=[
            [
                nothing if group.problem.id in masked or made.has_failed else each
                for made, each in zip(group.completions, scores, strict=True)
            ]
            for group, scores in zip(shard.groups, scored, strict=True)
        ],
        metrics={**_mean_metrics(parts), **episode_metrics(shard)},
        extra=_extra_columns(parts),
        teacher_logprobs=_said_by_teachers(parts),
        failures=(*failures, *failed_episodes(shard)),
        failed_calls=dict(sorted(failed.items())),
    )


def _in_order(name: str, jobs: Sequence[Job]) -> list[Part]:
    parts = [item for job in jobs for item in job.parts.get(name, {}).items()]
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
    """Return functions' columns, None where they failed; the later of two functions with one name
    has it as `<function>/<column>`."""
    columns: dict[str, list[Any]] = {}
    for function, parts_of_function in parts.items():
        answers = [part.answer for part in parts_of_function]
        for name in dict.fromkeys(name for answer in answers for name in answer.extra):
            column = columns.setdefault(f"{function}/{name}" if name in columns else name, [])
            for answer in answers:
                column.extend(answer.extra.get(name, [None] * len(answer.scores)))
    return dict(sorted(columns.items()))


def _said_by_teachers(parts: Mapping[str, Sequence[Part]]) -> Sequence[bytes | None]:
    """Return what the teacher of each completion said; each teacher is silent on those of others.
    Empty without teachers."""
    columns = [
        [text for part in each for text in _said(part.answer)]
        for each in parts.values()
        if any(part.answer.teacher_logprobs for part in each)
    ]
    texts = [next(filter(None, row), None) for row in zip(*columns, strict=True)]
    return [None if text is None else base64.b64decode(text) for text in texts]


def _said(answer: CallScores) -> Sequence[str | None]:
    return answer.teacher_logprobs or [None] * len(answer.scores)
