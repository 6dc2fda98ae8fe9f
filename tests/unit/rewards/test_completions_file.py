"""Completions read from a file: what a line may say, and what is said of a wrong one."""

import json

import pyarrow.parquet
import pytest

from mortal.rewards.functions import Length, Overlong, Repetition
from mortal_steps.errors import DataError, RewardError
from mortal_steps.rewards.base import TrainerState
from mortal_steps.rewards.calling.calls import arguments_of
from mortal_steps.rewards.kinds.users_code import FunctionTerm
from mortal_steps.rewards.scoring.completions_file import read_completions
from mortal_steps.store import RunStore
from mortal_steps.types import GeneratedShard
from tests.support.refused import refused
from tests.support.rewards.shards import make_shard

CHAT = [{"role": "user", "content": "2+2="}]


@pytest.fixture
def read(tmp_path):
    """Writes rows, or lines as they are, and reads them."""

    def read(*rows, prompt_column="prompt"):
        path = tmp_path / "some.jsonl"
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        path.write_text("\n".join(lines))
        return read_completions(path, prompt_column)

    return read


def test_completions_of_one_problem_are_a_group_wherever_they_stand(read):
    first, second = read(
        {"prompt": "2+2=", "completion": "4", "answer": "4"},
        {"prompt": "1+1=", "completion": "2", "level": 2},
        "",
        {"prompt": "2+2=", "completion": "5", "answer": "4", "completion_ids": [5, 1]},
    )
    assert (first.places, second.places) == (["row 0", "row 2"], ["row 1"])
    assert [each.text for each in first.group.completions] == ["4", "5"]
    assert [each.token_ids for each in first.group.completions] == [[], [5, 1]]
    assert first.group.problem.columns == {"answer": "4", "level": None}
    assert second.group.problem.columns == {"answer": None, "level": 2}


def test_the_prompt_stands_in_the_column_that_the_configuration_names(read):
    (given,) = read({"question": "2+2=", "completion": "4"}, prompt_column="question")
    assert (given.group.problem.prompt, given.group.problem.columns) == ("2+2=", {})


def test_a_parquet_file_has_rows_like_any_other(tmp_path):
    table = pyarrow.table({"prompt": ["2+2="], "completion": ["4"], "answer": ["4"]})
    pyarrow.parquet.write_table(table, tmp_path / "some.parquet")
    (given,) = read_completions(tmp_path / "some.parquet", "prompt")
    assert given.group.completions[0].text == "4"
    assert given.group.problem.columns == {"answer": "4"}


def test_a_chat_may_be_answered_with_messages_or_text(read):
    said = [{"role": "assistant", "content": "4"}]
    (given,) = read({"prompt": CHAT, "completion": said}, {"prompt": CHAT, "completion": "5"})
    messages, text = given.group.completions
    assert (messages.text, list(messages.messages)) == ("4", said)
    assert (text.text, text.messages) == ("5", ())


def test_a_shard_of_a_run_is_read_as_it_is(tmp_path):
    shard = make_shard(("ba", "ab"), ("a",))
    RunStore(tmp_path).write_record("generations-0.parquet", shard, GeneratedShard)
    found = read_completions(tmp_path / "generations-0.parquet", "prompt")
    assert [given.group.problem.id for given in found] == ["train-0", "train-1"]
    assert found[0].places == ["train-0[0]", "train-0[1]"]
    assert list(found[0].group.completions[0].token_ids) == [3, 4, 1]


GOOD = {"prompt": "2+2=", "completion": "4"}
WRONG = {
    "line 2 is not JSON": [GOOD, '{"prompt": '],
    "line 1": [[1]],
    "no rows": [],
    "'completion'": [{"prompt": "a"}],
    "no such column": [{"completion": "a"}],
    "row 0, column 'prompt': the prompt is empty": [{"prompt": " ", "completion": "a"}],
    "row 0, field 'completion": [{"prompt": "a", "completion": 4}],
    "chat messages answer a prompt that is text": [
        {"prompt": "a", "completion": [{"role": "assistant", "content": "b"}]}
    ],
    "field 'completion_ids.0'": [{**GOOD, "completion_ids": [-1]}],
    "column 'trainer_state'": [{**GOOD, "trainer_state": 1}],
    "prompts are both text and chat": [GOOD, {"prompt": CHAT, "completion": "4"}],
}


@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_line_is_named_with_its_field(read, message):
    with pytest.raises(DataError) as error:
        read(*WRONG[message])
    assert message in str(error.value) and "some.jsonl" in str(error.value)


def test_without_token_ids_a_reward_that_counts_them_fails(tmp_path):
    path = tmp_path / "some.jsonl"
    rows = [{"prompt": "a", "completion": ""}, {"prompt": "a", "completion": "b"}]
    terms = [
        Overlong(max_length=8, buffer=4),
        Repetition(),
        Length(target=1, tolerance=1),
        FunctionTerm(function="mortal.rewards.functions:repetition_penalty"),
    ]
    for ids in ([], [5]):
        rows[1]["completion_ids"] = ids
        path.write_text("\n".join(map(json.dumps, rows)))
        groups = [each.group for each in read_completions(path, "prompt")]
        arguments = arguments_of(groups, TrainerState(global_step=0, max_steps=1)).by_name
        assert len(Repetition(unit="words").load()(**arguments)) == 2
        for term in terms:
            if ids:
                assert len(term.load()(**arguments)) == 2
            else:
                with refused((TypeError, RewardError), "completion_ids"):
                    term.load()(**arguments)


def test_a_file_that_is_not_there_is_named(tmp_path):
    for name in ("some.jsonl", "generations-0.parquet"):
        with refused(DataError, "no such file", name):
            read_completions(tmp_path / name, "prompt")
