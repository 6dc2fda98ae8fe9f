"""The code of docs/reading-rollouts.md, run on the files of two steps."""

import io
import re
from dataclasses import replace
from pathlib import Path

import pandas
import pytest

from mortal_steps.store import RunStore
from mortal_steps.store.records import shard_file
from mortal_steps.store.shard_columns import pack
from mortal_steps.types import Episode, GeneratedShard, RewardedShard, Turn
from tests.support.paths import ROOT
from tests.support.rewards.shards import CHAT, make_shard

PAGE = ROOT / "docs" / "reading-rollouts.md"
CODE = dict(re.findall(r"^## (\w+)\n.*?```python\n(.*?)```", PAGE.read_text(), re.S | re.M))


def dialogue():
    """A shard of one problem: a completion of two turns, and one of one."""
    shard = make_shard(("abc", "abd"), prompt=CHAT)
    asked, alone = shard.groups[0].completions
    turns = tuple(
        Turn(start=start, stop=stop, seed=number, finish_reason="stop", round=number)
        for number, (start, stop) in enumerate([(0, 2), (3, 4)])
    )
    messages = (
        {"role": "assistant", "content": "a"},
        {"role": "tool", "name": "add", "content": "6"},
        {"role": "assistant", "content": "b"},
    )
    several = replace(
        asked, turns=turns, messages=messages, episode=Episode(stop="done", num_calls=1)
    )
    single = replace(alone, messages=messages[:1], episode=Episode(stop="done"))
    groups = [replace(shard.groups[0], completions=[several, single])]
    return replace(shard, groups=groups)


def table_of(shard):
    _, content = pack(Path("generations-0.parquet"), shard, GeneratedShard)
    return pandas.read_parquet(io.BytesIO(content))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Two steps of two shards, with two completions each for the first problem."""
    store = RunStore(tmp_path / "runs" / "RUN")
    for step in range(2):
        for shard in range(2):
            folder = f"steps/{step:06d}"
            made = replace(make_shard(("ba", "b"), ("ab",), step=step), shard=shard)
            ref = store.write_record(shard_file(folder, "generations", shard), made, GeneratedShard)
            scores = RewardedShard(
                step=step,
                shard=shard,
                generation_sha256=ref.sha256,
                rewards=[[{"exact": 1.0 * step}, {"exact": None}], [{"exact": 0.5}]],
            )
            store.write_record(shard_file(folder, "rewards", shard), scores, RewardedShard)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def test_pandas_joins_completions_and_scores(run, capsys):
    names = {}
    exec(CODE["pandas"], names)
    rollouts = names["rollouts"]
    assert len(rollouts) == 12
    assert list(rollouts["completion"][:3]) == ["ba", "b", "ab"]
    assert list(rollouts["token_ids"][0]) == [3, 4, 1]
    assert rollouts.groupby("step")["rewards/exact"].mean().tolist() == [0.25, 0.75]
    assert "rewards/exact" in capsys.readouterr().out


def test_dialogues_have_masks_and_messages(capsys):
    names = {"rollouts": table_of(dialogue())}
    exec(CODE["Dialogues"], names)
    rollouts = names["rollouts"]
    assert rollouts["loss_mask"].tolist() == [[1, 1, 0, 1], [1, 1, 1, 1]]
    assert rollouts["num_calls"].tolist() == [1, 0]
    assert capsys.readouterr().out.splitlines() == ["assistant a", "tool 6", "assistant b"]


def test_datasets_opens_all_steps(run, capsys):
    names = {}
    exec(CODE["datasets"], names)
    assert names["rollouts"].num_rows == 12
    assert names["rollouts"][0]["logprobs"] == [-0.5, -0.5, -0.5]
    assert capsys.readouterr().out.endswith("ba 3\n")
