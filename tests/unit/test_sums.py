"""The sums of `make train-smollm`: what is held out, what is rewarded, how sure a share is."""

import json

import pytest

from examples.sums.answers import shortened, wilson
from examples.sums.rewards import correct, ends_there
from examples.sums.rows import demonstrated, make_rows
from mortal_steps.recipes.file import read_recipe
from mortal_steps.recipes.recipe import Recipe
from tests.support.paths import ROOT

FOLDER = ROOT / "examples" / "sums"


def rows(name):
    return [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]


def test_the_files_hold_every_sum_once():
    assert rows("train.jsonl") + rows("eval.jsonl") == make_rows(seed=0)
    asked = [row["prompt"][-1]["content"] for row in make_rows(seed=0)]
    assert len(asked) == len(set(asked)) == 144
    assert len(rows("eval.jsonl")) == 44


def test_demonstrations_are_the_first_rows_with_their_answers():
    shown = rows("demonstrations.jsonl")
    assert shown == list(map(demonstrated, make_rows(seed=0)[:16]))
    for row, demonstration in zip(make_rows(seed=0), shown, strict=False):
        assert correct([demonstration["completion"]], [row["answer"]]) == [1.0]
        assert ends_there([demonstration["completion"]], [row["answer"]]) == [1.0]


@pytest.mark.parametrize("stage", ["before", "shown", "exam"])
def test_exams_of_the_recipe_have_room_for_answers_and_the_rewards_of_all(stage):
    plan = Recipe(read_recipe(FOLDER / "recipe.toml")).stages[stage].plan
    assert plan.sampling.training.max_tokens == 64
    assert list(plan.trainer.reward_weights.values()) == [1.0, 0.5]
    assert (ROOT / plan.problems.data.source).is_file()


@pytest.mark.parametrize(
    ("text", "is_correct", "ends"),
    [
        ("5 + 9 = 14.", 1.0, 1.0),
        ("5 + 9 = 14", 1.0, 1.0),
        ("5 + 9 = 14 So,", 1.0, 0.0),
        ("14 is 5 + 9", 0.0, 0.0),
        ("5 + 9 = 114.", 0.0, 0.0),
        ("To add 5 and 9, we need to find", 0.0, 0.0),
    ],
)
def test_an_answer_is_right_and_may_end_there(text, is_correct, ends):
    chat = [{"role": "assistant", "content": text}]
    assert correct([chat], ["14"]) == [is_correct]
    assert ends_there([chat], ["14"]) == [ends]


def test_the_interval_of_a_share_is_wilsons():
    # 13 of 44: centre 0.3113, half of its width 0.1309.
    assert wilson(13, 44) == pytest.approx((0.1816, 0.4422), abs=5e-5)
    low, high = wilson(44, 44)
    assert (round(low, 3), high) == (0.92, pytest.approx(1.0))


def test_a_long_answer_keeps_its_end():
    assert shortened("5 + 9\n= 14.") == "5 + 9 = 14."
    said = shortened("To add 5 and 9, we need to combine the numbers. So, 5 + 9 = 14.")
    assert len(said) <= 44 and said.startswith("To add 5") and said.endswith("= 14.")
