"""The code of docs/reading-rollouts.md, run on the files of two steps."""

import re
from dataclasses import replace

import pytest

from mortal_steps.store import RunStore
from mortal_steps.store.records import shard_file
from mortal_steps.types import GeneratedShard, RewardedShard
from tests.support.paths import ROOT
from tests.support.rewards.shards import make_shard

PAGE = ROOT / "docs" / "reading-rollouts.md"
CODE = dict(re.findall(r"^## (\w+)\n.*?```python\n(.*?)```", PAGE.read_text(), re.S | re.M))


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


def test_datasets_opens_all_steps(run, capsys):
    names = {}
    exec(CODE["datasets"], names)
    assert names["rollouts"].num_rows == 12
    assert names["rollouts"][0]["logprobs"] == [-0.5, -0.5, -0.5]
    assert capsys.readouterr().out.endswith("ba 3\n")
