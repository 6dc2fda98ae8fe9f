"""`type = "judge"`: what a judge says is what a shard is scored, and each answer is paid once."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mortal_steps.errors import ConfigError, RewardError
from mortal_steps.plan.parts import Plan
from mortal_steps.rewards.judge.ledger import Spending
from mortal_steps.rewards.worker import RewardWorker
from mortal_steps.store import RunStore
from mortal_steps.types import RewardedShard
from tests.support.judge_asked import FOR_LONG
from tests.support.judge_stub import Answer, JudgeStub, judged
from tests.support.paths import ROOT
from tests.support.rewards.judged import RUN, TEXTS, begin, config, request

NAME = "judge"
KEY = "sk-very-secret"
SCORES = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MY_KEY", KEY)


@pytest.fixture
def stub() -> Iterator[JudgeStub]:
    with JudgeStub() as made:
        yield made


@pytest.fixture
def make_worker(stub: JudgeStub) -> Iterator[Callable[..., RewardWorker]]:
    made: list[RewardWorker] = []

    def make(term: dict[str, Any] | None = None, **rewards: Any) -> RewardWorker:
        settings = config(stub.url, term or {}, **rewards)
        made.append(RewardWorker(run_dir=RUN, plan=Plan(settings).scoring, num_steps=10))
        return made[-1]

    yield make
    for worker in made:
        worker.close()


def rewards(worker: RewardWorker, store: RunStore) -> RewardedShard:
    return store.read_record(worker.reward(request=request(store)).file, RewardedShard)


def scores(rewarded: RewardedShard) -> list[list[float | None]]:
    return [[row[NAME] for row in group] for group in rewarded.rewards]


def test_a_shard_is_scored_paid_and_recorded_without_the_key(
    stub: JudgeStub, make_worker: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    stub.key = KEY
    store = begin()
    prices = {"input": 1000.0, "output": 5000.0}
    worker = make_worker({"api_key_env": "MY_KEY", "prices": prices})
    assert scores(rewards(worker, store)) == SCORES
    assert sorted(stub.paid) == TEXTS
    spent = Spending(store.root).so_far()
    assert (spent.answers, spent.dollars) == (6, pytest.approx(6 * 0.2))
    for path in store.root.rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes()
    assert KEY not in "".join(capfd.readouterr())


def test_a_run_that_is_killed_while_it_waits_for_a_judge_pays_once(
    stub: JudgeStub, make_worker: Any
) -> None:
    store = begin()
    stub.next.extend([Answer()] * 3)
    stub.next.append(Answer(status=503, after_s=20))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.support.rewards.judged", stub.url]
    with subprocess.Popen(command, env=environment) as process:
        while len(stub.requests) < 4:
            assert process.poll() is None, "it ended by itself"
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert Spending(store.root).so_far().answers == 3
    stub.score = lambda body: 9.0 if judged(body) in TEXTS[:3] else float(len(judged(body)))
    assert scores(rewards(make_worker(), store)) == SCORES
    assert sorted(stub.paid) == TEXTS


def test_a_problem_that_a_judge_cannot_score_is_masked_and_the_others_are_untouched(
    stub: JudgeStub, make_worker: Any
) -> None:
    store = begin()
    stub.always = lambda body: Answer(says="none") if judged(body) == "ccc" else None
    rewarded = rewards(make_worker(on_error="mask", retries=1), store)
    assert scores(rewarded) == [SCORES[0], [None, None], SCORES[2]]
    (failure,) = rewarded.failures
    assert (failure.kind, failure.problem_id) == ("judge", "train-1")
    assert "the answer is no grade" in failure.message
    assert len(stub.paid) == 5 + 3, "one answer each, and the tries of the one that cannot be read"
    assert Spending(store.root).so_far().answers == 8


def test_an_outage_stops_the_run_which_goes_on_from_what_is_paid(
    stub: JudgeStub, make_worker: Any
) -> None:
    store = begin()
    away = Answer(status=503, headers=FOR_LONG)
    stub.always = lambda body: away if len(stub.paid) >= 2 else None
    with pytest.raises(RewardError, match=r"got no score from its judge: .*4 of 6.*status 503"):
        make_worker().reward(request=request(store))
    stub.always = lambda body: None
    assert scores(rewards(make_worker(), store)) == SCORES
    assert sorted(stub.paid) == TEXTS


def test_a_wrong_key_stops_the_run_even_where_failures_are_masked(
    stub: JudgeStub, make_worker: Any
) -> None:
    store = begin()
    stub.key = "sk-other"
    worker = make_worker({"api_key_env": "MY_KEY"}, on_error="mask", retries=3)
    with pytest.raises(ConfigError, match="api_key_env = 'MY_KEY'") as raised:
        worker.reward(request=request(store))
    assert KEY not in str(raised.value)
    assert len(stub.requests) == 1


def test_a_variable_that_is_missing_stops_the_run_before_anything_is_scored(
    make_worker: Any,
) -> None:
    with pytest.raises(ConfigError, match="api_key_env = 'NOT_THERE'"):
        make_worker({"api_key_env": "NOT_THERE"}).start()
