"""`direct`: versions in shared memory are those of `reload` to the bit, after a kill and after a
reboot, too."""

from __future__ import annotations

import os
import shutil
import signal

import pytest

from mortal_steps.policy import journal, publishing
from mortal_steps.policy.on_disk import weights
from mortal_steps.store import shared_memory
from tests.support.killed import killed_in_a_fork
from tests.support.policy.rollouts import make_config
from tests.support.policy.runs import NUM_STEPS, make_run

KILLED_AT = 2
"""The step that is being taken when the actor is killed."""


def made(folder, model_path, method, **rollout):
    rollout = {"weight_sync": method, **rollout}
    config = make_config(rollout=rollout)
    return make_run(folder, config, model_path, num_steps=NUM_STEPS)


@pytest.fixture(params=[0, 2], ids=["synchronous", "two steps ahead"])
def staleness(request):
    return request.param


@pytest.fixture
def run(model_path, tmp_path, staleness):
    yield made(tmp_path / "run", model_path, "direct", staleness=staleness)
    shared_memory.remove_folder(tmp_path / "run")


@pytest.fixture
def undisturbed(model_path, tmp_path, staleness):
    """Return what `reload` ends with."""
    run = made(tmp_path / "reload", model_path, "reload", staleness=staleness)
    actor = run.actor()
    actor.prepare(step=0)
    train(run, actor, range(NUM_STEPS))
    return ending(run, actor)


def train(run, actor, steps):
    """Take the steps, each with the checkpoint that is due after it."""
    for step in steps:
        run.train(actor, [step])
        if (step + 1) % 2 == 0:
            actor.checkpoint(step=step + 1, best_score=None)


def ending(run, actor):
    published = [journal.find_result(run.store, step).weights for step in range(NUM_STEPS)]
    return run.state_digests(actor, NUM_STEPS) | {"published": published}


def train_until_killed(run, before):
    """Never returns."""
    actor = run.actor()
    actor.prepare(step=0)
    train(run, actor, range(KILLED_AT))
    if before == "its version":
        publishing.probe_of = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    else:
        journal.write_result = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    run.train(actor, [KILLED_AT])


@pytest.mark.parametrize("memory", ["kept", "emptied"])
@pytest.mark.parametrize("before", ["its version", "its result"])
def test_the_bits_are_those_of_reload_after_a_kill_and_a_reboot(run, undisturbed, before, memory):
    killed_in_a_fork(train_until_killed, run, before)
    folder = shared_memory.folder_of(run.store.root)
    assert (run.store.in_memory.path("weights/v3").exists()) == (before == "its result")
    if memory == "emptied":
        shutil.rmtree(folder)
    second = run.actor()
    ready = second.prepare(step=KILLED_AT)
    for reference in ready.weights:
        assert weights.find(run.store, reference.version) == reference
    assert not list(run.store.in_memory.path(weights.FOLDER).glob(".*")), "a leftover"
    train(run, second, range(KILLED_AT, NUM_STEPS))
    assert ending(run, second) == undisturbed


def test_the_disk_has_the_versions_that_a_checkpoint_does_not_lead_to(run, staleness):
    """They sample the steps after it, and could be made again only from an earlier checkpoint."""
    actor = run.actor()
    actor.prepare(step=0)
    train(run, actor, range(2))
    older = list(range(2 - staleness, 2))
    assert weights.published_versions(run.store) == older
    in_memory = weights.published_versions(run.store.in_memory)
    assert set(in_memory) >= {*older, 2}
    for version in older:
        assert weights.find_in(run.store, version) == weights.find_in(run.store.in_memory, version)


def test_a_version_that_is_damaged_in_memory_is_read_from_the_disk(run, staleness):
    actor = run.actor()
    actor.prepare(step=0)
    train(run, actor, range(2))
    path = f"weights/v{2 - staleness}"
    whole = weights.find(run.store, 2 - staleness)
    damaged = next(run.store.in_memory.path(path).glob("*.safetensors"))
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    found = weights.find(run.store, 2 - staleness)
    if staleness:
        assert found == whole
        assert run.store.holding(path).root == run.store.root
    else:
        assert found is None


def test_no_other_user_can_read_them(run):
    run.actor().prepare(step=0)
    folder = shared_memory.folder_of(run.store.root)
    assert folder.stat().st_mode & 0o777 == 0o700
