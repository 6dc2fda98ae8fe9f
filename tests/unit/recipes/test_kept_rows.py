"""Which completions become rows, in TRL's columns."""

import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.trials.scoring import ScoredGroup
from mortal_steps.recipes.kept_rows import (
    SampleSettings,
    candidates_of,
    made_up_row,
    other_columns,
    rows_of,
)
from mortal_steps.recipes.kinds.own_table import read_table
from mortal_steps.types import Completion, GeneratedGroup, PolicyVersion, Problem

CHAT = [{"role": "user", "content": "ab"}]


def scored(rewards, prompt="ab", **columns):
    """A group whose completions are a, b, c, ... with these rewards."""
    completions = [
        Completion(
            token_ids=[number + 1],
            logprobs=[-0.1],
            text=chr(ord("a") + number),
            finish_reason="stop",
            seed=number,
            policy_version=PolicyVersion(0),
        )
        for number in range(len(rewards))
    ]
    problem = Problem(id="train-0", prompt=prompt, columns=columns)
    group = GeneratedGroup(problem=problem, prompt_ids=[1], completions=completions)
    return ScoredGroup(group=group, rewards=rewards)


def rows(rewards, prompt="ab", **settings):
    found = SampleSettings(completions=max(2, len(rewards)), **settings)
    return list(rows_of(candidates_of(scored(rewards, prompt)), found))


def test_the_best_is_kept_and_of_several_the_first():
    assert rows([0.1, 0.9, 0.9]) == [{"prompt": "ab", "completion": "b", "reward": 0.9}]


def test_a_best_below_the_threshold_is_left_out():
    assert rows([0.1, 0.4], threshold=0.5) == []
    assert [each["completion"] for each in rows([0.1, 0.5], threshold=0.5)] == ["b"]


def test_all_above_are_kept_in_their_order():
    found = rows([0.9, 0.1, 0.5, 0.9], keep="above", threshold=0.5)
    assert [each["completion"] for each in found] == ["a", "c", "d"]


def test_a_pair_is_the_first_of_the_best_and_the_first_of_the_worst():
    assert rows([0.5, 0.9, 0.1, 0.9, 0.1], keep="pairs") == [
        {"prompt": "ab", "chosen": "b", "rejected": "c"}
    ]


@pytest.mark.parametrize("rewards", [[0.5, 0.5], [0.5, None], [None, None], []])
def test_a_group_without_a_difference_is_no_pair(rewards):
    assert rows(rewards, keep="pairs") == []


def test_a_pair_is_good_enough_or_none():
    assert rows([0.1, 0.4], keep="pairs", threshold=0.5) == []


def test_a_completion_without_a_reward_is_neither_good_nor_bad():
    assert rows([None, -1.0, 0.0, None], keep="unpaired", threshold=0.0) == [
        {"prompt": "ab", "completion": "b", "reward": -1.0, "label": False},
        {"prompt": "ab", "completion": "c", "reward": 0.0, "label": True},
    ]
    assert [each["completion"] for each in rows([None, -1.0])] == ["b"]
    assert rows([-1.0, None, 0.0], keep="pairs")[0]["rejected"] == "a"


def test_a_chat_is_answered_by_messages():
    [row] = rows([0.0, 1.0], CHAT, keep="pairs")
    assert row == {
        "prompt": CHAT,
        "chosen": [{"role": "assistant", "content": "b"}],
        "rejected": [{"role": "assistant", "content": "a"}],
    }


@pytest.mark.parametrize("keep", ["best", "above", "pairs", "unpaired"])
@pytest.mark.parametrize("prompt", ["ab", CHAT])
def test_made_up_rows_have_the_columns_of_real_ones(keep, prompt):
    threshold = 0.5 if keep in ("above", "unpaired") else None
    real = rows([0.0, 1.0], prompt, keep=keep, threshold=threshold)[-1]
    made = made_up_row(prompt, keep)
    assert {name: type(value) for name, value in made.items()} == {
        name: type(value) for name, value in real.items()
    }


def test_columns_that_no_trainer_reads_and_any_reader_takes_alike_are_kept():
    problems = [
        Problem(
            id="0",
            prompt="a",
            columns={"answer": "1", "n": 1, "mixed": 1, "label": True, "list": [1], "tools": []},
        ),
        Problem(
            id="1",
            prompt="b",
            columns={
                "answer": None,
                "n": 2,
                "mixed": "2",
                "label": False,
                "list": [],
                "tools": [],
            },
        ),
    ]
    assert other_columns(problems) == ["answer", "n", "tools"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"keep": "above"}, "stages.best.sample: keep = 'above' needs the lowest reward"),
        ({"keep": "unpaired"}, "set threshold"),
        ({"keep": "pairs", "completions": 1}, "compares two or more"),
        ({"keep": "top"}, "stages.best.sample.keep = 'top'"),
        ({"treshold": 1}, "unknown key; did you mean stages.best.sample.threshold?"),
        ({"completions": 0}, "stages.best.sample.completions = 0"),
        ("best", "must be a table"),
    ],
)
def test_a_wrong_table_is_refused_by_name(values, message):
    with pytest.raises(ConfigError, match=r"stages\.best\.sample") as refused:
        read_table(SampleSettings, values, "stages.best.sample")
    assert message in str(refused.value)
