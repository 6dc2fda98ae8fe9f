"""Rows of runs with tools and environments: prompts that are missing, names of environments."""

import pytest

from mortal_steps.config import DataConfig
from mortal_steps.data.problems import load_problems
from mortal_steps.data.values import NO_PROMPT
from mortal_steps.errors import ConfigError, DataError
from mortal_steps.orchestration.checking.checks import check_no_rows, check_rows
from mortal_steps.orchestration.checking.reward_calls import check_something_scores
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.types import Problem
from tests.support.refused import refused
from tests.support.rows import prompts, write_lines

CHAT = [{"role": "user", "content": "Reach it."}]


def load(num_made=2, own_rows=None, **keys):
    return load_problems(DataConfig(**keys), 0, num_made=num_made, own_rows=own_rows)


def config(**values):
    return RunConfig.model_validate(
        {"data": {"source": "rows.jsonl"}, "environment": {"factory": "a:B"}} | values
    )


def problem(prompt=CHAT, **columns):
    return Problem(id="train-0", prompt=prompt, columns=columns)


def test_rows_may_lack_prompts_where_an_environment_gives_them():
    rows = [{"target": 1}, {"target": 2, "prompt": CHAT}, {"target": 3, "prompt": NO_PROMPT}]
    source = write_lines("rows.jsonl", rows)
    train, _ = load(source=source)
    assert prompts(train) == [NO_PROMPT, CHAT, NO_PROMPT]
    assert [one.columns for one in train] == [{"target": 1}, {"target": 2}, {"target": 3}]
    with refused(DataError, "data.source = 'rows.jsonl', row 0"):
        load(num_made=None, source=source)


@pytest.mark.parametrize("rows", [[{"target": 1}, {"prompt": "a"}], [{"prompt": "a"}, {}]])
def test_where_prompts_are_observed_those_of_rows_are_no_text(rows):
    """The observation of an episode is a chat message, as is a prompt in its place."""
    source = write_lines("rows.jsonl", [{"n": 0, **row} for row in rows])
    with refused(DataError, "row 1: prompts are both text and chat messages", "without a prompt"):
        load(source=source)
    with refused(DataError, "row 1: prompts are both text and chat messages"):
        load(source=write_lines("train.jsonl", [{"target": 1}]), eval_source=source)
    train, _ = load_problems(DataConfig(source=source), 0, num_made=2, are_learned=True)
    assert sorted(map(str, prompts(train))) == sorted(["a", str(NO_PROMPT)])


def test_a_mistyped_prompt_column_is_still_an_error():
    source = write_lines("rows.jsonl", [{"question": "a"}])
    with refused(DataError, "data.prompt_column = 'questoin'", "'question'"):
        load(source=source, prompt_column="questoin")


def test_without_a_source_rows_are_made():
    train, held_out = load(num_made=3)
    assert [(one.id, one.prompt, one.columns) for one in train] == [
        (f"train-{number}", NO_PROMPT, {}) for number in range(3)
    ]
    assert held_out == []
    with refused(DataError, "data.source is not set"):
        load(num_made=None)


def brought(held_out, limit):
    return iter([{"prompt": CHAT, "target": n + 100 * held_out} for n in range(limit or 9)])


def test_rows_that_the_environment_brings():
    train, held_out = load(own_rows=brought, source="environment", max_samples=4, eval_samples=1)
    assert {one.columns["target"] for one in train + held_out} == {0, 1, 2, 3}
    train, held_out = load(own_rows=brought, source="environment", eval_source="environment")
    assert [one.columns["target"] for one in held_out] == list(range(100, 109))
    assert [one.id for one in train] == [f"train-{number}" for number in range(9)]


def test_rows_that_it_does_not_bring():
    with refused(DataError, "data.source = 'environment'", "[environment]"):
        load(source="environment")
    with refused(DataError, "data.split = 'test'", "table"):
        load(own_rows=brought, source="environment", split="test")
    with refused(DataError, "data.source is not set", "'environment'"):
        load(own_rows=brought)


def test_rows_with_the_same_prompt_are_held_out_by_all_that_they_hold():
    rows = [{"prompt": CHAT, "target": number % 8} for number in range(16)]
    train, held_out = load(source=write_lines("rows.jsonl", rows), eval_samples=2)
    taken = {one.columns["target"] for one in held_out}
    assert train and taken and taken.isdisjoint(one.columns["target"] for one in train)
    other = write_lines("eval.jsonl", [{"target": 3, "prompt": CHAT}])
    train, _ = load(source="rows.jsonl", eval_source=other)
    assert {one.columns["target"] for one in train} == set(range(8)) - {3}


def test_rows_that_fit_are_taken():
    check_rows(config().environment, [problem(), problem(NO_PROMPT)])
    check_rows(RunConfig().environment, [problem("text")])
    table = {"environment": {"factory": {"shop": "a:B", "game": "a:C"}}}
    check_rows(
        config(**table).environment, [problem(environment="shop"), problem(environment="game")]
    )
    without = config(data={}, training={"max_steps": 3})
    check_no_rows(without.environment, without.training)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (problem(environment="shopp"), ["row train-0", "'shopp'", "'shop', 'game'", "mean 'shop'"]),
        (problem(), ["row train-0", "'environment' is None", "'shop', 'game'"]),
        (problem("text", environment="shop"), ["row train-0", "prompt", '"role"']),
    ],
)
def test_a_row_that_does_not_fit_is_named(row, told):
    table = {"environment": {"factory": {"shop": "a:B", "game": "a:C"}}}
    with refused(DataError, *told):
        check_rows(config(**table).environment, [problem(environment="game"), row])


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, ["training.max_steps = -1", "set training.max_steps"]),
        (
            {"environment": {"factory": {"shop": "a:B"}}},
            ["data.source is not set", "'environment'"],
        ),
    ],
)
def test_a_run_without_rows_has_a_length_and_one_environment(values, told):
    with refused(ConfigError, *told):
        without = config(**{"data": {}, **values})
        check_no_rows(without.environment, without.training)


def check_scored(config):
    check_something_scores(config.rewards, config.environment, problem())


def test_something_has_to_score():
    with refused(ConfigError, "[rewards]", "`get_reward`"):
        check_scored(config())
    with refused(ConfigError, "[rewards]") as without:
        check_scored(config(environment={"tools": ["a:b"]}))
    assert "get_reward" not in str(without.value), "tools alone have none"
