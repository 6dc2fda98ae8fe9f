"""A batch of completions of which teachers spoke."""

import dataclasses

import pytest

from mortal_steps.errors import StoreError
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.batches import ScoredRollouts
from mortal_steps.types import GeneratedShard, RewardedShard
from tests.support.policy.rollouts import make_config
from tests.support.policy.runs import make_run
from tests.support.refused import refused


@pytest.fixture
def run(tmp_path, model_path):
    return make_run(tmp_path, make_config(), model_path)


def rewritten(run, reference, **changes):
    """Return the reference of the same scores with changes."""
    rewarded = run.store.read_record(reference.file, RewardedShard)
    changed = dataclasses.replace(rewarded, **changes)
    number = len(list(run.store.root.glob("changed-*")))
    file = run.store.write_record(f"changed-{number}.parquet", changed, RewardedShard)
    return dataclasses.replace(reference, file=file)


def taught(run, batch, said):
    references = []
    for reference in batch.rewards:
        count = sum(map(len, run.store.read_record(reference.file, RewardedShard).rewards))
        references.append(rewritten(run, reference, teacher_logprobs=said[:count]))
        said = said[count:]
    assert said == []
    return ScoredRollouts(rewards=references)


def test_each_completion_is_read_with_what_its_teacher_said(run):
    batch = run.request(0).batch
    plan = Plan(run.config).trainer
    given = [each for group in batch.read(run.store, 0, plan).groups for each in group.rollouts]
    assert {each.teacher_logprobs for each in given} == {None}
    said = [f"{number}".encode() for number in range(len(given))]
    found = taught(run, batch, said).read(run.store, 0, plan).groups
    assert [each.teacher_logprobs for group in found for each in group.rollouts] == said


def test_what_teachers_said_is_a_part_of_the_batch(run):
    batch = run.request(0).batch
    without = batch.content(run.store)
    plan = Plan(run.config).trainer
    count = sum(len(group.rollouts) for group in batch.read(run.store, 0, plan).groups)
    contents = [without]
    for last in (b"a", b"b", None):
        contents.append(taught(run, batch, [b"a"] * (count - 1) + [last]).content(run.store))
    assert all(one != other for n, one in enumerate(contents) for other in contents[:n])


def test_one_thing_is_said_of_each_completion(run):
    reference = run.request(0).batch.rewards[0]
    with refused(StoreError, "teachers said 1 things of 8 completions"):
        rewritten(run, reference, teacher_logprobs=[b"a"])


def test_scores_of_other_completions_are_refused(run):
    batch = run.request(0).batch
    other = rewritten(run, batch.rewards[0], generation_sha256="0" * 64)
    with refused(StoreError, "changed-0.parquet scores generations 000000000000, not"):
        ScoredRollouts(rewards=[other, *batch.rewards[1:]]).read(
            run.store, 0, Plan(run.config).trainer
        )


def test_completions_of_another_version_are_refused(tmp_path, model_path):
    """A student that samples a step ahead learns from those of the version that is due, and of no
    older one."""
    run = make_run(tmp_path, make_config(rollout={"staleness": 1}), model_path)
    reference = run.request(2).batch.rewards[0]
    shard = run.store.read_record(reference.generation.file, GeneratedShard)
    assert shard.policy_version == 1
    older = dataclasses.replace(shard, policy_version=0)
    file = run.store.write_record(reference.generation.file.path, older, GeneratedShard)
    generation = dataclasses.replace(reference.generation, file=file)
    changed = dataclasses.replace(reference, generation=generation)
    with refused(StoreError, "was sampled for step 2 with version 0", "wants version 1"):
        ScoredRollouts(rewards=[changed]).read(run.store, 2, Plan(run.config).trainer)
