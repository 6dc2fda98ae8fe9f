"""What is scored again after a reward function or an environment has failed."""

import dataclasses
from pathlib import Path

import pytest

from mortal_steps.orchestration.trials.scoring import SHARDS, discard_earlier, discard_masked
from mortal_steps.store import RunStore
from mortal_steps.store.records import shard_file
from mortal_steps.types import GeneratedShard, RewardedShard, RewardFailure
from tests.support.rewards.shards import make_shard

FAILURE = RewardFailure(
    function="length",
    problem_id="train-0",
    num_completions=1,
    kind="exception",
    message="nobody answers",
    attempts=1,
)


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path)


def commit(store, number, *failures):
    shard = make_shard(("a",), number=number)
    file = shard_file(SHARDS, "generations", number)
    made = store.write_record(file, shard, GeneratedShard)
    rewards = RewardedShard(
        step=shard.step,
        shard=number,
        generation_sha256=made.sha256,
        rewards=[[{"length": None if failures else 1.0}]],
        failures=failures,
    )
    store.write_record(shard_file(SHARDS, "rewards", number), rewards, RewardedShard)


def names(store):
    return {path.name.removesuffix(path.suffix) for path in store.path(SHARDS).iterdir()}


def test_scores_that_failed_are_discarded_and_episodes_that_did(store):
    commit(store, 0)
    commit(store, 1, FAILURE)
    commit(store, 2, dataclasses.replace(FAILURE, kind="environment"))
    discard_masked(store, SHARDS)
    assert names(store) == {"generations-0", "rewards-0", "generations-1"}


def test_a_kill_between_two_files_leaves_nothing_half(store, monkeypatch):
    """Episodes that failed are never scored again as if they were sound ones."""
    commit(store, 0, dataclasses.replace(FAILURE, kind="environment"))
    unlink, removed = Path.unlink, []

    def killed(path, **given):
        if removed:
            raise KeyboardInterrupt
        removed.append(path)
        unlink(path, **given)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "unlink", killed)
        discard_masked(store, SHARDS)
    assert names(store) == {"rewards-0"}
    discard_masked(store, SHARDS)
    assert names(store) == set()


def test_a_call_that_was_killed_before_its_end_goes_on(store):
    commit(store, 0, FAILURE)
    discard_earlier(store, 2, asks_masked_again=True)
    assert "rewards-0" in names(store)


@pytest.mark.parametrize("killed_at", [0, 1, 2])
def test_a_kill_while_an_earlier_call_is_discarded_leaves_nothing_of_it(
    store, monkeypatch, killed_at
):
    commit(store, 0, FAILURE)
    commit(store, 1)
    commit(store, 2, FAILURE)
    unlink, removed = Path.unlink, []

    def killed(path, **given):
        if len(removed) == killed_at:
            raise KeyboardInterrupt
        removed.append(path)
        unlink(path, **given)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "unlink", killed)
        discard_earlier(store, 3, asks_masked_again=True)
    discard_earlier(store, 3, asks_masked_again=True)
    scored = {"generations-0", "generations-1", "generations-2", "rewards-1"}
    assert names(store) == scored
    commit(store, 0, FAILURE)
    discard_earlier(store, 3, asks_masked_again=True)
    assert names(store) == scored | {"rewards-0"}, "this call goes on"


def test_what_was_masked_stays_unless_it_is_asked_for_again(store):
    commit(store, 0, FAILURE)
    discard_earlier(store, 1, asks_masked_again=False)
    assert "rewards-0" in names(store)
