"""mortal_steps.rewards.scoring.scorer: what runs beside what, and that it changes no score."""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from mortal_steps.config import RewardsConfig
from mortal_steps.errors import RewardError, TransientError
from mortal_steps.rewards.base import TrainerState
from mortal_steps.rewards.calling.calls import CallArguments, Outcome
from mortal_steps.rewards.calling.dispatch import begin_call
from mortal_steps.rewards.host import RewardHost
from mortal_steps.rewards.scoring import jobs
from mortal_steps.rewards.scoring.assignments import Assignment
from mortal_steps.rewards.scoring.jobs import Job, StoppedError, Work
from mortal_steps.rewards.scoring.scorer import Scorer
from mortal_steps.types import RewardedShard
from tests.support.refused import refused
from tests.support.rewards.shards import make_shard

STATE = TrainerState(global_step=8, max_steps=20)
GROUPS = (("a", "bb"), ("ccc", "d"), ("eeeee", ""), ("ff", "gg"), ("h", "iii"))
TOGETHER_S = 20.0
"""How long functions that wait for each other do so before they fail."""


class InThisProcess(RewardHost):
    """A host that calls functions where it is; `close` makes it a new one."""

    def __init__(self, **functions: Callable[..., Any]) -> None:
        super().__init__({})
        self.functions = functions
        self.times_closed = 0

    def async_of(self, names: Sequence[str]) -> list[str]:
        return []

    def with_environments(self, names: Sequence[str]) -> list[str]:
        return []

    def call(
        self,
        names: Sequence[str],
        arguments: CallArguments,
        *,
        timeout_s: float,
        after: Sequence[str] = (),
    ) -> dict[str, Outcome]:
        return {
            name: begin_call(self.functions[name], arguments, timeout_s=timeout_s)()
            for name in names
        }

    def close(self) -> None:
        self.times_closed += 1


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "FIRST_DELAY_S", 0.001)


def lengths(completions: list[str], log_metric: Any, log_extra: Any, **kwargs: Any) -> list[float]:
    if "bad" in completions:
        raise ValueError("bad")
    log_metric("longest", max(map(len, completions)))
    log_extra("text", completions)
    return [float(len(text)) for text in completions]


def score(
    assignments: Sequence[Assignment], groups: Sequence[tuple[str, ...]] = GROUPS, **options: Any
) -> RewardedShard:
    names = [name for each in assignments for name in each.names]
    config = RewardsConfig(**{"retries": 1, **options})
    scorer = Scorer(assignments, names, config)
    scores, seconds = scorer.score(make_shard(*groups), STATE, sha256="")
    assert set(seconds) == set(names)
    return scores


def by_problem(function: Callable[..., Any], num_hosts: int) -> Assignment:
    hosts = [InThisProcess(f=function) for _ in range(num_hosts)]
    return Assignment(names=["f"], hosts=hosts, by_problem=True)


@pytest.mark.parametrize("num_hosts", [1, 3, 8])
def test_each_problem_alone_in_any_number_of_hosts_scores_the_same(num_hosts: int) -> None:
    scores = score([by_problem(lengths, num_hosts)])
    assert scores.rewards == [[{"f": float(len(text))} for text in texts] for texts in GROUPS]
    assert scores.extra == {"text": [text for texts in GROUPS for text in texts]}
    assert scores.metrics == {"longest": (2 + 3 + 5 + 2 + 3) / 5}, "of a call for each problem"


@pytest.mark.parametrize("num_hosts", [1, 3])
@pytest.mark.parametrize("retries", [0, 2])
def test_the_problem_that_fails_is_masked_alone(num_hosts: int, retries: int) -> None:
    groups = (("a",), ("bad",), ("cc",), ("d",))
    scores = score([by_problem(lengths, num_hosts)], groups, on_error="mask", retries=retries)
    assert [rows[0]["f"] for rows in scores.rewards] == [1.0, None, 2.0, 1.0]
    tries = max(2, 1 + retries)
    (failure,) = scores.failures
    assert (failure.problem_id, failure.attempts) == ("train-1", tries)
    assert scores.failed_calls == {"f": tries}


def test_what_an_earlier_problem_did_to_the_process_masks_none() -> None:
    """Although nothing is configured to be called again."""
    spoilt: list[bool] = []

    def once_spoilt(completions: list[str], **kwargs: Any) -> list[float]:
        if host.times_closed == 0 and spoilt:
            raise OSError("too many open files")
        spoilt.append(True)
        return [1.0] * len(completions)

    host = InThisProcess(f=once_spoilt)
    assignment = Assignment(names=["f"], hosts=[host], by_problem=True)
    scores = score([assignment], (("a",), ("b",), ("c",)), retries=0, on_error="mask")
    assert (scores.failures, scores.failed_calls) == ((), {"f": 1})
    spoilt.clear()
    host.times_closed = 0
    in_shards = Assignment(names=["f"], hosts=[host])
    found = [score([in_shards], ((one,),), retries=0, on_error="mask") for one in "abc"]
    assert [each.failures for each in found] == [(), (), ()]


def test_a_failure_names_its_problem() -> None:
    with refused(RewardError, "bad (tests/unit/", "step 4", "problem train-1"):
        score([by_problem(lengths, 2)], (("a",), ("bad",), ("c",)))


def test_assignments_run_beside_each_other() -> None:
    meeting = threading.Barrier(3, timeout=TOGETHER_S)

    def meets(completions: list[str], **kwargs: Any) -> list[float]:
        meeting.wait()
        return [1.0] * len(completions)

    one = Assignment(names=["one"], hosts=[InThisProcess(one=meets)])
    scores = score([by_problem(meets, 2), one], (("a",), ("b",)))
    assert scores.rewards == [[{"f": 1.0, "one": 1.0}]] * 2


def test_async_functions_are_called_at_once_after_the_others_as_trl_does() -> None:
    called: list[tuple[str, ...]] = []

    class WithAsync(InThisProcess):
        def async_of(self, names: Sequence[str]) -> list[str]:
            return [name for name in names if name.startswith("async")]

        def call(self, names: Sequence[str], *args: Any, **options: Any) -> dict[str, Outcome]:
            called.append(tuple(names))
            return super().call(names, *args, **options)

    names = ["async_a", "plain", "async_b"]
    host = WithAsync(**dict.fromkeys(names, lengths))
    scores = score([Assignment(names=names, hosts=[host])], (("a",), ("bb",)))
    assert called == [("plain",), ("async_a", "async_b")]
    assert list(scores.rewards[0][0]) == names


def test_an_error_of_one_assignment_ends_the_shard_once_the_other_has_answered() -> None:
    begun, failed = threading.Event(), threading.Event()

    def fails(completions: list[str], **kwargs: Any) -> list[float]:
        assert begun.wait(TOGETHER_S)
        failed.set()
        raise TransientError("an outage")

    def slow(completions: list[str], **kwargs: Any) -> list[float]:
        begun.set()
        assert failed.wait(TOGETHER_S)
        return [1.0] * len(completions)

    alone = Assignment(names=["slow"], hosts=[InThisProcess(slow=slow)])
    with refused(TransientError, "an outage"):
        score([alone, by_problem(fails, 1)], (("a",), ("b",)))


def test_once_a_job_has_failed_no_call_of_another_begins() -> None:
    calls: list[list[str]] = []

    def notes(completions: list[str], **kwargs: Any) -> list[float]:
        calls.append(completions)
        return [1.0] * len(completions)

    work = Work(shard=make_shard(*GROUPS), trainer_state=STATE, config=RewardsConfig())
    work.stopped.set()
    job = Job(InThisProcess(f=notes), ["f"], work)
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    waiting.put(0)
    with pytest.raises(StoppedError):
        job.score_whole()
    with pytest.raises(StoppedError):
        job.score_problems(waiting)
    assert not calls
