"""What is trained on where prompts are held out as well, and what a user is told of it."""

from typing import Any

import pytest

from mortal_steps.data.problems import ReadProblems, read_problems
from mortal_steps.errors import DataError
from mortal_steps.orchestration.checking.data_lines import rows_in_words
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.system.scratch import Scratch
from tests.support.refused import refused
from tests.support.rows import load, prompts, write_lines


def read(**keys: Any) -> tuple[ReadProblems, str]:
    """Read the rows, and say what became of them."""
    config = RunConfig.model_validate({"data": keys})
    found = read_problems(config.data, 0, Scratch())
    return found, rows_in_words(config.data, found)


def repeated() -> str:
    """40 rows with 34 different prompts, of which each of the last three is there three times."""
    names = [*range(31), *[31, 32, 33] * 3]
    return write_lines("rows.jsonl", [{"prompt": f"p{name}="} for name in names])


def test_rows_that_are_left_out_are_counted() -> None:
    found, words = read(source=repeated(), eval_samples=12)
    held_out = set(prompts(list(found.held_out)))
    assert found.num_shared == 2 and not held_out & set(prompts(list(found.train)))
    assert words == (
        "40 rows: 12 held out, 2 left out of training because their prompt is held out "
        "(data.exclude_held_out), 26 to train on"
    )


def test_only_the_drawn_rows_are_left_out_where_prompts_may_repeat() -> None:
    found, words = read(source=repeated(), eval_samples=12, exclude_held_out=False)
    drawn = {row.id.replace("eval", "train") for row in found.held_out}
    assert {row.id for row in found.train} == {f"train-{row}" for row in range(40)} - drawn
    assert words == (
        "40 rows: 12 held out, 28 to train on, 2 of them with a prompt that is held out, too "
        "(data.exclude_held_out = false)"
    )


def test_prompts_that_are_all_the_same_text_can_be_evaluated() -> None:
    rows = [{"prompt": "Solve the task.", "task": f"{row}+1"} for row in range(10)]
    source = write_lines("rows.jsonl", rows)
    with refused(DataError, "data.exclude_held_out = false"):
        load(source=source, eval_samples=3)
    train, held_out = load(source=source, eval_samples=3, exclude_held_out=False)
    tasks = [[row.columns["task"] for row in rows] for rows in (train, held_out)]
    assert (len(tasks[0]), len(tasks[1])) == (7, 3)
    assert sorted(tasks[0] + tasks[1]) == [row["task"] for row in rows]


def test_one_dataset_may_be_trained_on_and_held_out_if_asked(letters: str) -> None:
    found, words = read(source=letters, eval_source=letters, exclude_held_out=False)
    assert prompts(list(found.train)) == prompts(list(found.held_out))
    assert words == (
        "10 rows: 10 to train on, 10 of them with a prompt that is held out, too "
        "(data.exclude_held_out = false); 10 held out (data.eval_source)"
    )


@pytest.mark.parametrize(
    "keys", [{"eval_source": "no.jsonl"}, {"eval_sets": {"a": "no.jsonl"}}], ids=["one", "a set"]
)
def test_one_dataset_for_both_is_refused_before_it_is_read(keys: dict[str, Any]) -> None:
    with refused(DataError, "data.source", "eval_dataset"):
        load(source="no.jsonl", **keys)


def test_one_source_with_two_splits_is_not_one_dataset() -> None:
    with refused(DataError, "no such file"):  # so it was looked at
        load(source="no.jsonl", eval_source="no.jsonl", eval_split="test")


def test_rows_beside_others_are_told_by_their_key(letters: str) -> None:
    other = write_lines("eval.jsonl", [{"prompt": "p3="}, {"prompt": "new="}])
    assert read(source=letters, eval_source=other)[1] == (
        "10 rows: 1 left out of training because its prompt is held out (data.exclude_held_out), "
        "9 to train on; 2 held out (data.eval_source)"
    )
    new = write_lines("new.jsonl", [{"prompt": "new="}])
    words = read(source=letters, eval_sets={"one": new})[1]
    assert words == "10 rows: 10 to train on; 1 held out (data.eval_sets)"
    assert read(source=letters)[1] == "10 rows: 10 to train on"
