"""What each row has to hold where rows are learned, whatever the first one holds."""

import pytest

from mortal_steps.config import DataConfig
from mortal_steps.data.problems import load_problems
from mortal_steps.errors import DataError
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.algorithms.base import algorithm_of
from mortal_steps.policy.algorithms.rows.columns import checked_rows, row_of
from mortal_steps.policy.algorithms.rows.preparing import open_prepared
from tests.support.policy.rows import Stepping, judged, make_config, pairs, preferences, texts
from tests.support.policy.rows import problems as as_problems
from tests.support.refused import refused
from tests.support.rows import write_lines

CHAT = [{"role": "user", "content": "a"}]
MESSAGES = [{"messages": CHAT} for _ in range(4)]
LAST = "row train-3: its column"
BAD = {
    # TRL trains on a label of -1 as on a good answer.
    "a label of -1": ("kto", judged(4), {"label": -1}, [f"{LAST} 'label' is -1", "write true"]),
    "a label as text": ("kto", judged(4), {"label": "no"}, ["'label' is 'no'", "false for a bad"]),
    "no label": ("kto", judged(4), {"label": None}, [f"{LAST} 'label' is missing"]),
    "a label between both": ("kto", judged(4), {"label": 0.3}, ["'label' is 0.3"]),
    "no text": ("sft", texts(4), {"text": None}, [f"{LAST} 'text' is missing", "is text; write"]),
    "no prompt": ("sft", pairs(4), {"prompt": None}, [f"{LAST} 'prompt' is missing"]),
    "a number": ("sft", pairs(4), {"completion": 7}, ["'completion' is 7, and TRL takes text"]),
    "other kinds": ("sft", pairs(4), {"completion": CHAT}, ["'completion' is [{'role'", "is text"]),
    "no messages": (
        "sft",
        MESSAGES,
        {"messages": None},
        ["'messages' is missing", "a list of mes"],
    ),
    "labels of a class": (
        "sft",
        [{**row, "labels": 1} for row in texts(4)],
        {},
        ["'labels' is 1", "the tokens to learn", "data.drop_columns = ['labels']"],
    ),
    "no better one": ("dpo", preferences(4), {"chosen": None}, [f"{LAST} 'chosen' is missing"]),
    "no margin": (
        "reward",
        [{**row, "margin": 1.5} for row in preferences(4)],
        {"margin": None},
        [f"{LAST} 'margin' is missing", "data.drop_columns = ['margin']"],
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_row_of_another_kind_than_the_first_is_named(bad, model_path, tmp_path):
    kind, rows, changes, named = BAD[bad]
    run = Stepping(make_config(model_path, kind), model_path, tmp_path)
    with refused(DataError, *named):
        run.prepare([*rows[:3], {**rows[3], **changes}])


def test_columns_that_are_named_like_tokens_are_none_of_the_rows_parts(model_path, tmp_path):
    config, rows = make_config(model_path), [{**row, "topic_ids": 7} for row in texts(4)]
    folder, algorithm = tmp_path / "prepared", algorithm_of(config.algorithm)
    came = algorithm.prepare(Plan(config).trainer, as_problems(rows), [], folder=folder)
    assert list(came.first) == ["row", "learned"] and came.longest > 7


def test_held_out_rows_are_looked_at_as_well(model_path, tmp_path):
    run = Stepping(make_config(model_path, "kto"), model_path, tmp_path)
    with refused(DataError, "row eval-1: its column 'label' is 2"):
        run.prepare(judged(4), [judged(1)[0], {**judged(1)[0], "label": 2}])


def form(first, **last):
    return [first, first, {**first, **last}]


PREPARED = {
    "messages beside texts, some missing": form({"messages": CHAT, "text": "a"}, text=None),
    "messages beside numbers": form({"messages": CHAT, "text": 7}),
    "texts beside numbers": form({"text": "a", "messages": 7, "completion": 7}),
    "texts beside others": form({"text": "a", "messages": None}, messages=CHAT),
    "texts beside completions": form({"text": "a", "completion": "b"}, completion=None),
    "completions beside messages": form({**pairs(1)[0], "messages": CHAT}, messages=None),
    "chats beside texts": form({"prompt": CHAT, "completion": CHAT, "text": "a"}, text=None),
    "chats beside lists": form({"prompt": CHAT, "completion": CHAT, "text": ["a"]}),
    "conversations": form({"conversations": [{"from": "user", "value": "a"}], "messages": 7}),
}


@pytest.mark.parametrize("rows", PREPARED.values(), ids=PREPARED)
def test_of_several_forms_the_one_that_trl_reads_is_checked(rows, model_path, tmp_path):
    run = Stepping(make_config(model_path), model_path, tmp_path)
    run.prepare(rows, [{"text": "a", "completion": 7}])
    assert len(open_prepared(tmp_path / "prepared")["train"]) == len(rows)


def test_conversations_that_trl_makes_messages_of_are_in_each_row(model_path, tmp_path):
    rows = form({"conversations": [{"from": "user", "value": "a"}]}, conversations=None)
    with refused(DataError, "row train-2: its column 'conversations' is missing"):
        Stepping(make_config(model_path), model_path, tmp_path).prepare(rows)


def test_of_rows_with_tokens_only_numbers_are_checked(model_path, tmp_path):
    tokens = {"prompt": "a", "chosen_ids": [5, 6], "rejected_ids": [7], "margin": 1.0}
    run = Stepping(make_config(model_path, "reward"), model_path, tmp_path)
    run.prepare(form(tokens, prompt=None))
    with refused(DataError, "row train-2: its column 'margin' is missing"):
        run.prepare(form(tokens, margin=None))


def test_what_trl_takes_passes_and_columns_beside_it_may_hold_anything():
    kept = [
        (judged(2), ("prompt", "completion", "label")),
        ([{"text": "a", "label": number, "prompt_id": None} for number in (3, "x")], ("text",)),
        ([{"text": "a", "completion": None}, {"text": "b", "completion": "c"}], ("text",)),
        ([{**judged(1)[0], "label": label} for label in (True, 0, 1.0)], ("label",)),
        ([{"chosen": CHAT, "rejected": CHAT, "margin": 1}], ("chosen", "rejected", "margin")),
        ([{"margin": True}, {"margin": False}], ("margin",)),
        ([{"input_ids": [1, 2]}, {"input_ids": [3]}], ("text", "prompt")),
    ]
    for rows, columns in kept:
        assert list(checked_rows(as_problems(rows), columns, rows[0])) == rows


def test_a_row_without_a_prompt_is_none_that_has_messages(tmp_path, monkeypatch):
    """It is named by what it lacks, once all rows are read."""
    monkeypatch.chdir(tmp_path)
    source = write_lines("rows.jsonl", [*pairs(1), {"completion": "a"}])
    read, _ = load_problems(DataConfig(source=source), 0, num_made=4, are_learned=True)
    with refused(DataError, "row train-1: its column 'prompt' is missing", "is text"):
        list(checked_rows(read, ("prompt", "completion"), row_of(read[0])))
    source = write_lines("rows.jsonl", [{"completion": "a"}, *pairs(1)])
    read, _ = load_problems(DataConfig(source=source), 0, num_made=4, are_learned=True)
    with refused(DataError, "row train-1: its column 'prompt'", "is missing; write the same"):
        list(checked_rows(read, ("prompt", "completion"), row_of(read[0])))
