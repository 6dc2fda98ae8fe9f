"""What the actor reads before a step is asked for changes nothing of the step."""

import pytest

from mortal_steps.errors import CorruptFileError
from mortal_steps.policy import journal
from tests.support.damage import flip_a_byte
from tests.support.policy.runs import untimed


def read_ahead(actor, request):
    actor.read_ahead(generations=[reward.generation for reward in request.batch.rewards])


def generations_of(run, request):
    return [run.store.path(reward.generation.file.path) for reward in request.batch.rewards]


def test_the_step_is_the_same_and_its_shards_are_not_read_again(run, actor):
    other = run.actor()
    other.prepare(step=0)
    expected = other.train_step(request=run.request(0))
    run.store.path("steps/000000/result.json").unlink()
    request = run.request(0)
    read_ahead(actor, request)
    for path in generations_of(run, request):
        path.unlink()
    assert untimed(actor.train_step(request=request)) == untimed(expected)
    assert not actor._states.records._read, "their memory is given back"


def test_a_damaged_shard_is_named_by_the_step_that_needs_it(run, actor):
    request = run.request(0)
    flip_a_byte(generations_of(run, request)[1])
    read_ahead(actor, request)
    with pytest.raises(CorruptFileError, match=r"generations-1\.parquet is damaged"):
        actor.train_step(request=request)


def test_a_shard_that_is_made_again_is_the_one_trained_on(run, actor):
    read_ahead(actor, run.request(0, content=3))
    request = run.request(0)
    result = actor.train_step(request=request)
    assert result.batch_sha256 == journal.batch_digest(run.store, request)
