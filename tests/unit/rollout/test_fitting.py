"""Prompts that do not fit the model are counted, named, and left out where that is asked for."""

import pytest

from mortal_steps.config import DataConfig
from mortal_steps.errors import DataError
from mortal_steps.policy.starting_model.prompt_lengths import PromptLengths, keep_fitting
from mortal_steps.types import Problem
from tests.support.refused import refused


def problems(prefix, *prompts):
    return [Problem(id=f"{prefix}-{row}", prompt=prompt) for row, prompt in enumerate(prompts)]


def config(**data):
    return DataConfig(**data)


def lengths(*tokens, unusable=None, context=10):
    return PromptLengths(tokens=tokens, unusable=unusable or {}, context=context, fits=context - 4)


TRAIN, HELD_OUT = problems("train", "a", "b", "c"), problems("eval", "d", "e")


def test_prompts_that_fit_stay_as_they_are():
    for on_long in ("error", "drop"):
        kept = keep_fitting(config(on_long=on_long), TRAIN, HELD_OUT, lengths(6, 1, 1, 1, 6))
        assert kept == (TRAIN, HELD_OUT)


def test_long_prompts_are_named_or_left_out():
    found = lengths(7, 1, 1, 9, 6)
    with refused(DataError, "2 of 5", "train-0: 7 tokens", "eval-0: 9 tokens"):
        keep_fitting(config(), TRAIN, HELD_OUT, found)
    kept = keep_fitting(config(on_long="drop"), TRAIN, HELD_OUT, found)
    assert kept == (TRAIN[1:], HELD_OUT[1:])


def test_leaving_rows_out_must_leave_some():
    with pytest.raises(DataError, match=r"no training rows.* 10"):
        keep_fitting(config(on_long="drop"), TRAIN, HELD_OUT, lengths(7, 7, 7, 1, 1))
    with pytest.raises(DataError, match="leaves no held-out rows"):
        keep_fitting(config(on_long="drop"), TRAIN, HELD_OUT, lengths(1, 1, 1, 7, 7))


def test_many_long_prompts_are_counted_and_some_named():
    many = problems("train", *"abcdefgh")
    with pytest.raises(DataError, match=r"8 of 8 .*train-4: 7 tokens, \.\.\.\)"):
        keep_fitting(config(), many, [], lengths(*[7] * 8))


def test_unusable_prompts_are_never_left_out():
    found = lengths(0, 1, 1, 1, 1, unusable={0: "it has no tokens"})
    with refused(DataError, "1 of 5", "train-0", "no tokens"):
        keep_fitting(config(on_long="drop"), TRAIN, HELD_OUT, found)
