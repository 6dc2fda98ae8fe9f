"""Scores that environments gave: copied, masked, counted."""

from dataclasses import replace

import pytest

from mortal_steps.rewards.scoring.episodes import (
    episode_metrics,
    failed_episodes,
    scored_by_environments,
)
from mortal_steps.types import (
    Completion,
    Episode,
    GeneratedGroup,
    GeneratedShard,
    PolicyVersion,
    Problem,
    Turn,
)


def completion(episode, turns=()):
    return Completion(
        token_ids=[1, 2, 3, 4, 5],
        logprobs=[-0.1, -0.1, 0.0, 0.0, -0.1] if turns else [-0.1] * 5,
        text="",
        finish_reason="stop",
        seed=1,
        policy_version=PolicyVersion(0),
        turns=turns,
        episode=episode,
    )


def turn(start, stop, number):
    return Turn(start=start, stop=stop, seed=number, finish_reason="stop", round=number)


def shard(*groups):
    return GeneratedShard(
        step=0,
        shard=0,
        policy_version=PolicyVersion(0),
        groups=[
            GeneratedGroup(
                problem=Problem(id=f"train-{number}", prompt="a"), prompt_ids=[1], completions=group
            )
            for number, group in enumerate(groups)
        ],
    )


GOOD = Episode(
    stop="done", scores={"Shop": 1.0, "near": None}, metrics={"visits": 2.0}, extra={"total": 7}
)
BAD = Episode(stop="failed", failure="tool add: no answer within 60 s")


def test_scores_beside_an_environment_are_copied_and_the_others_are_left_to_call():
    made = shard([completion(GOOD), completion(BAD)], [completion(GOOD), completion(GOOD)])
    parts = scored_by_environments(made, ["lottery", "near", "Shop"])
    assert list(parts) == ["near", "Shop"]
    assert list(parts["Shop"].answer.scores) == [1.0, None, 1.0, 1.0]
    logged = parts["near"].answer
    assert logged.extra == {"total": [7, None, 7, 7]}
    assert logged.metrics == {"visits": [2.0, 2.0, 2.0]}


def test_a_shard_without_environments_leaves_all_to_call():
    assert scored_by_environments(shard([completion(None)]), ["Shop"]) == {}
    assert episode_metrics(shard([completion(None)])) == {}


def test_nothing_is_called_for_a_shard_of_failed_episodes():
    made = shard([completion(BAD), completion(BAD)])
    parts = scored_by_environments(made, ["lottery", "Shop"])
    assert {name: list(part.answer.scores) for name, part in parts.items()} == {
        "lottery": [None, None],
        "Shop": [None, None],
    }
    (failure,) = failed_episodes(made)
    assert (failure.problem_id, failure.num_completions, failure.kind) == (
        "train-0",
        2,
        "environment",
    )
    assert "60 s" in failure.message
    assert [each.has_failed for each in made.groups[0].completions] == [True, True]


def test_metrics_say_how_episodes_went():
    made = shard([completion(GOOD, (turn(0, 2, 0), turn(4, 5, 1))), completion(BAD)])
    found = episode_metrics(made)
    assert found["episodes/turns"] == pytest.approx(1.5)
    assert found["episodes/environment_tokens"] == pytest.approx(1.0)
    assert found["episodes/stop_failed"] == found["episodes/stop_done"] == pytest.approx(0.5)
    assert found["episodes/stop_length"] == 0
    assert "episodes/differing_answers" not in found


def test_metrics_count_episodes_with_an_answer_that_changed():
    changed = replace(completion(GOOD), differing_answer="tool add: 'a' before, 'b' now")
    found = episode_metrics(shard([changed, *[completion(GOOD)] * 3]))
    assert found["episodes/differing_answers"] == 0.25
