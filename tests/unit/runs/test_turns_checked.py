"""What `mortal verify` looks for in completions of several turns."""

from dataclasses import replace

import pytest

from mortal_steps.errors import CorruptFileError
from mortal_steps.runs.checked import check_turns
from mortal_steps.store import RunStore
from mortal_steps.types import Episode, GeneratedShard, Turn
from tests.support.rewards.shards import CHAT, make_completion, make_shard

TURNS = tuple(
    Turn(start=start, stop=stop, seed=number, finish_reason="stop", round=number)
    for number, (start, stop) in enumerate([(0, 2), (3, 4)])
)
MESSAGES = (
    {"role": "assistant", "content": "a"},
    {"role": "tool", "name": "add", "content": "6"},
    {"role": "assistant", "content": "b"},
)
WHOLE = replace(
    make_completion("abc"),
    logprobs=[-0.5, -0.5, 0.0, -0.5],
    turns=TURNS,
    messages=MESSAGES,
    episode=Episode(stop="done", num_calls=1),
)


@pytest.fixture
def committed(tmp_path):
    store = RunStore(tmp_path)

    def commit(completion):
        shard = make_shard(("abc",), prompt=CHAT)
        groups = [replace(shard.groups[0], completions=[completion])]
        made = replace(shard, groups=groups)
        return store, store.write_record("generations-0.parquet", made, GeneratedShard)

    return commit


def test_turns_that_fit_are_no_damage(committed):
    check_turns(*committed(WHOLE))


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"turns": (TURNS[0], replace(TURNS[1], start=1))}, "turn of the tokens"),
        ({"logprobs": [-0.5] * 4}, "logprobs other than 0.0"),
        ({"messages": MESSAGES[:2]}, "2 turns, in which 1 messages"),
    ],
    ids=["overlap", "logprobs", "messages"],
)
def test_what_does_not_fit_is_named_with_its_problem(committed, changes, wrong):
    with pytest.raises(CorruptFileError, match=f"generations-0.*train-0 that .*{wrong}"):
        check_turns(*committed(replace(WHOLE, **changes)))


def test_a_damaged_file_is_damaged_first_of_all(committed):
    store, ref = committed(WHOLE)
    path = store.path(ref.path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptFileError):
        check_turns(store, ref)
