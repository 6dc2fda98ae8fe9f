"""Shards of which most episodes failed are an outage, and are not committed."""

import pytest

from mortal_steps.environments.scoring import check_most_succeeded
from mortal_steps.errors import EnvironmentFailedError
from mortal_steps.types import Completion, Episode, GeneratedGroup, PolicyVersion, Problem

GOOD = Episode(stop="done")
BAD = Episode(stop="failed", failure="tool search: ConnectionError: refused")


def groups(*problems):
    return [
        GeneratedGroup(
            problem=Problem(id=f"train-{number}", prompt=[]),
            prompt_ids=[1],
            completions=[
                Completion(
                    token_ids=[1],
                    logprobs=[0.0],
                    text="",
                    finish_reason="stop",
                    seed=1,
                    policy_version=PolicyVersion(0),
                    episode=episode,
                )
                for episode in episodes
            ],
        )
        for number, episodes in enumerate(problems)
    ]


def test_more_than_half_in_more_than_one_problem_stop_the_run():
    with pytest.raises(EnvironmentFailedError, match="3 of 4 episodes") as raised:
        check_most_succeeded(groups([GOOD, BAD], [BAD, BAD]))
    assert "tool search: ConnectionError: refused" in str(raised.value)
    assert "train-1" in str(raised.value), "where most failed"


@pytest.mark.parametrize(
    "made",
    [
        [[GOOD, BAD], [BAD, GOOD]],
        [[BAD, BAD]],
        [[BAD, BAD, BAD], [GOOD, GOOD]],
        [[None, None], [None, None]],
    ],
    ids=["half", "one-problem-alone", "all-of-one-problem", "no-environment"],
)
def test_other_failures_are_masked(made):
    check_most_succeeded(groups(*made))
