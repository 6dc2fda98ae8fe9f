"""mortal_steps.rewards.scoring: failures are retried, then raised or masked, never scored."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mortal_steps.config import RewardsConfig
from mortal_steps.errors import RewardError, TransientError
from mortal_steps.hosts import base
from mortal_steps.rewards.base import TrainerState
from mortal_steps.rewards.host import RewardHost
from mortal_steps.rewards.scoring import jobs
from mortal_steps.rewards.scoring.assignments import Assignment
from mortal_steps.rewards.scoring.scorer import Scorer
from mortal_steps.types import RewardedShard, RewardFailure
from tests.support.rewards import failing
from tests.support.rewards.calling import term
from tests.support.rewards.shards import make_shard

STATE = TrainerState(global_step=8, max_steps=20)
HANGING = {"sleeps", "backtracks", "blocks_the_loop"}


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(base, "GRACE_S", 0.1)
    monkeypatch.setattr(jobs, "FIRST_DELAY_S", 0.01)


@pytest.fixture
def score() -> Iterator[Callable[..., RewardedShard]]:
    hosts: list[RewardHost] = []

    def run(*names: str, groups: tuple[tuple[str, ...], ...], **options: Any) -> RewardedShard:
        hosts.append(RewardHost({name: term(f"{failing.__file__}:{name}") for name in names}))
        timeout_s = 0.3 if HANGING & set(names) else 30.0
        config = RewardsConfig(**{"timeout_s": timeout_s, "retries": 1, **options})
        assignment = Assignment(names=names, hosts=hosts[-1:])
        scorer = Scorer([assignment], names, config)
        return scorer.score(make_shard(*groups), STATE, sha256="")[0]

    yield run
    for host in hosts:
        host.close()


def test_scores_lie_beside_their_completions(score: Any) -> None:
    scores = score("patient", "returns_nan", groups=(("a", "bb"), ("ccc",)))
    assert scores.rewards == [
        [{"patient": 1.0, "returns_nan": 1.0}, {"patient": 2.0, "returns_nan": 1.0}],
        [{"patient": 3.0, "returns_nan": 1.0}],
    ]
    assert list(scores.rewards[0][0]) == ["patient", "returns_nan"], "in the order of the names"
    assert (scores.failures, scores.failed_calls) == ((), {})


def test_async_functions_of_a_shard_run_beside_each_other(score: Any) -> None:
    scores = score("meets", "returns_nan", "meets_too", groups=(("a",), ("b",)), retries=0)
    assert scores.rewards == [[{"meets": 1.0, "returns_nan": 1.0, "meets_too": 1.0}]] * 2


@pytest.mark.parametrize("on_error", ["raise", "mask"])
def test_a_failure_that_passes_leaves_a_count_and_nothing_else(score: Any, on_error: str) -> None:
    scores = score("flaky", groups=(("a", "bb"), ("c",)), on_error=on_error)
    assert scores.rewards == [[{"flaky": 2.0}, {"flaky": 2.0}], [{"flaky": 1.0}]]
    assert (scores.failures, scores.failed_calls) == ((), {"flaky": 1})


@pytest.mark.parametrize(
    ("name", "word", "message"),
    [
        ("raises", "raise", "/tests/support/rewards/failing.py, line 48) on step 4, problem"),
        ("sleeps", "sleep", "gave no answer within 0.3 s on step 4"),
        ("backtracks", "regex", "rewards.timeout_s."),
        ("exits", "exit", "ended its process (exit code 3) on step 4"),
        ("returns_nan", "nan", "returned nan (float) for problem train-1 (completion 0 of it)"),
    ],
)
def test_a_failure_that_stays_stops_the_run(score: Any, name: str, word: str, message: str) -> None:
    with pytest.raises(RewardError) as caught:
        score("length", name, groups=(("a",), (word,)), retries=0)
    text = str(caught.value)
    assert text.startswith(f"reward function {name!r} ")
    assert message in text
    assert "on step 4, problems train-0 ... train-1. " in text


def test_an_error_tells_how_often_it_was_tried(score: Any) -> None:
    with pytest.raises(RewardError, match="problem train-0, 3 times in a row"):
        score("raises", groups=(("raise",),), retries=2)


@pytest.mark.parametrize("on_error", ["raise", "mask"])
def test_errors_that_may_pass_are_neither_retried_nor_masked(score: Any, on_error: str) -> None:
    with pytest.raises(TransientError, match="ask again later"):
        score("unreachable", groups=(("a",),), on_error=on_error)


@pytest.mark.parametrize(
    ("name", "word", "kind", "message"),
    [
        ("raises", "raise", "exception", "raised ZeroDivisionError: division by zero"),
        ("sleeps", "sleep", "timeout", "gave no answer within 0.3 s"),
        ("backtracks", "regex", "timeout", "gave no answer within 0.3 s"),
        ("exits", "exit", "crash", "ended its process (exit code 3)"),
        ("blocks_the_loop", "block", "timeout", "gave no answer within 0.3 s"),
        (
            "returns_nan",
            "nan",
            "invalid",
            "returned nan (float) for problem train-1 (completion 1 of it)",
        ),
    ],
)
def test_only_the_problems_it_fails_on_are_masked(
    score: Any, name: str, word: str, kind: str, message: str
) -> None:
    groups = (("a", "b"), ("a", word), ("a",))
    scores = score("patient", name, groups=groups, retries=0, on_error="mask")
    own = 1.0
    whole = {"patient": 1.0, name: own}
    nothing = {"patient": None, name: None}
    assert scores.rewards == [[whole, whole], [nothing, nothing], [whole]]
    assert scores.failures == (
        RewardFailure(
            function=name,
            problem_id="train-1",
            num_completions=2,
            kind=kind,
            message=message,
            attempts=2,
        ),
    )
    assert scores.failed_calls == {name: 2}


def test_each_function_masks_what_it_fails_on(score: Any) -> None:
    groups = (("raise",), ("a",), ("exit raise",))
    scores = score("raises", "exits", groups=groups, on_error="mask")
    assert [group[0]["raises"] for group in scores.rewards] == [None, 1.0, None]
    assert [(f.function, f.problem_id) for f in scores.failures] == [
        ("raises", "train-0"),
        ("raises", "train-2"),
        ("exits", "train-2"),
    ]
    assert scores.failed_calls == {"raises": 2 + 3, "exits": 2 + 1}, "once more in a new process"


def test_what_a_function_did_to_its_process_does_not_stop_the_run(score: Any) -> None:
    scores = score("spoils_its_process_once", groups=(("a",), ("bb",)))
    assert [group[0] for group in scores.rewards] == [
        {"spoils_its_process_once": 1.0},
        {"spoils_its_process_once": 2.0},
    ]


def test_nobody_is_masked_for_what_another_problem_did_to_the_process(score: Any) -> None:
    groups = (("a",), ("spoil",), ("bb",))
    scores = score("spoils_its_process", groups=groups, on_error="mask")
    assert [group[0]["spoils_its_process"] for group in scores.rewards] == [1.0, None, 2.0]
    assert [(f.problem_id, f.attempts) for f in scores.failures] == [("train-1", 4)]


def test_a_shard_of_one_problem_needs_no_search(score: Any) -> None:
    scores = score("raises", groups=(("a", "raise"),), on_error="mask")
    assert scores.rewards == [[{"raises": None}, {"raises": None}]]
    assert [(f.problem_id, f.attempts) for f in scores.failures] == [("train-0", 2)]
    assert scores.failed_calls == {"raises": 2}


def test_logs_of_failed_calls_are_dropped_and_columns_stay_aligned(score: Any) -> None:
    scores = score("logs", groups=(("a", "b"), ("logs",), ("c",)), on_error="mask")
    assert scores.extra == {"text": ["a", "b", None, "c"]}
    assert scores.metrics == {"calls": 1.0}


def test_two_functions_may_log_columns_of_one_name(score: Any) -> None:
    scores = score("logs", "logs_too", groups=(("a", "bb"),))
    assert scores.extra == {"text": ["a", "bb"], "logs_too/text": [1, 2]}
