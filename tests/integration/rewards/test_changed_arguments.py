"""Functions that change what they are given: it is theirs, as in TRL, and fresh after a failure."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mortal_steps.config import RewardsConfig
from mortal_steps.rewards.base import TrainerState
from mortal_steps.rewards.host import RewardHost
from mortal_steps.rewards.scoring import jobs
from mortal_steps.rewards.scoring.assignments import Assignment
from mortal_steps.rewards.scoring.scorer import Scorer
from tests.support.rewards import changing
from tests.support.rewards.calling import term
from tests.support.rewards.shards import CHAT, make_shard

STATE = TrainerState(global_step=8, max_steps=20)
COLUMNS = {"numbers": [1, 2, 3], "facts": {"seen": [{"by": ["him"]}]}}
Scores = dict[str, list[float]]


@pytest.fixture
def score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Scores]]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jobs, "FIRST_DELAY_S", 0.01)
    hosts: list[RewardHost] = []

    def run(*names: str, groups: Any = (("ba", "b", "a"),), **options: Any) -> Scores:
        hosts.append(RewardHost({name: term(f"{changing.__file__}:{name}") for name in names}))
        config = RewardsConfig(**{"retries": 1, **options})
        scorer = Scorer([Assignment(names=names, hosts=hosts[-1:])], names, config)
        shard = make_shard(*groups, prompt=CHAT, columns=COLUMNS)
        rewards = scorer.score(shard, STATE, sha256="")[0].rewards
        return {name: [row[name] for group in rewards for row in group] for name in names}

    yield run
    for host in hosts:
        host.close()


def test_each_completion_has_its_columns_and_its_prompt_to_itself(score: Any) -> None:
    scores = score("judged", "countdown", "nested", groups=(("ba", "b", "a"), ("a", "b")))
    assert scores == {"judged": [2.0] * 5, "countdown": [3.0] * 5, "nested": [1.0] * 5}


def test_functions_see_what_those_before_them_have_changed_as_in_trl(score: Any) -> None:
    scores = score("prompt_lengths_later", "prompt_lengths", "judged", "nested")
    assert scores["prompt_lengths"] == [1.0] * 3
    assert scores["prompt_lengths_later"] == [2.0] * 3, "async ones come last"


def test_a_call_that_is_made_again_finds_its_columns_fresh(score: Any) -> None:
    assert score("fails_after_its_changes") == {"fails_after_its_changes": [3.0] * 3}
    assert score("ends_after_its_changes") == {"ends_after_its_changes": [1.0] * 3}


@pytest.mark.parametrize("retries", [1, 2], ids=["in-a-new-process", "in-the-same-process"])
def test_a_failure_does_not_change_what_later_functions_see(score: Any, retries: int) -> None:
    names = ("judged", "countdown", "fails_after_its_changes", "prompt_lengths")
    scores = score(*names, retries=retries)
    assert scores == {
        "judged": [2.0] * 3,
        "countdown": [3.0] * 3,
        "fails_after_its_changes": [2.0] * 3,
        "prompt_lengths": [2.0] * 3,
    }


def test_a_lost_process_does_not_change_what_later_functions_see(score: Any) -> None:
    scores = score("judged", "ends_after_its_changes", "nested")
    assert scores == {
        "judged": [2.0] * 3,
        "ends_after_its_changes": [2.0] * 3,
        "nested": [1.0] * 3,
    }


def test_a_function_that_is_called_for_each_problem_sees_the_same(score: Any) -> None:
    groups = (("ba", "b"), ("bad", "b"), ("a", "aa"))
    scores = score("judged", "fails_on_some", groups=groups, on_error="mask")
    assert scores["fails_on_some"] == [2.0, 2.0, None, None, 2.0, 2.0]
    assert scores["judged"] == [2.0, 2.0, None, None, 2.0, 2.0]
