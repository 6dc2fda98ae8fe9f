"""`direct`: an actor that is killed between memory and disk comes back to the same bits."""

from __future__ import annotations

import os
import signal
import time

import pytest

from mortal_steps.policy import journal
from mortal_steps.policy.on_disk import weights
from mortal_steps.store import RunStore
from mortal_steps.store.segments import SHARED_MEMORY, Segment, opened, prefix_of, remove_segments
from mortal_steps.types import SegmentRef
from tests.support.killed import killed_in_a_fork
from tests.support.policy.rollouts import make_config
from tests.support.policy.runs import NUM_STEPS, make_run

KILLED_AT = 2
"""The step that is taken, or has just been taken, when the actor is killed."""
STAGES = {
    # results that are there, folder of the version published after that step
    "while the memory is written": (2, False),
    "when it is announced": (2, False),
    "when half of the folder is written": (2, False),
    "when the folder is whole": (2, True),
    "after the result, before the folder": (3, False),
}


def direct_run(folder, model_path, **rollout):
    config = make_config(rollout={"weight_sync": "direct", **rollout})
    return make_run(folder, config, model_path, num_steps=NUM_STEPS)


@pytest.fixture
def run(model_path, tmp_path):
    yield direct_run(tmp_path / "run", model_path)
    remove_segments(tmp_path / "run")


def die(*_args, **_kwargs):
    os.kill(os.getpid(), signal.SIGKILL)


def never(*_args, **_kwargs):
    time.sleep(600)


def half_and_die(store, relative, files, digests):
    folder = store.path("weights/.v3.0a1b2c3d.partial")
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(bytes(files["model.safetensors"])[:1000])
    die()


def train_until_killed(run, stage):
    """Never returns."""
    actor = run.actor()
    actor.prepare(step=0)
    run.train(actor, range(KILLED_AT))
    actor._memory._publisher.join()
    write_result = journal.write_result
    if stage == "while the memory is written":
        Segment.seal = die
    elif stage == "when it is announced":
        RunStore.commit_folder = never
        journal.write_result = die
    elif stage == "when half of the folder is written":
        RunStore.commit_folder = half_and_die
        journal.write_result = never
    elif stage == "when the folder is whole":
        journal.write_result = lambda *_: (actor._memory._publisher.join(), die())
    else:
        RunStore.commit_folder = never
        journal.write_result = lambda *given: (write_result(*given), die())
    run.train(actor, [KILLED_AT])


@pytest.fixture(scope="module")
def undisturbed(model_path, tmp_path_factory):
    """What `direct` ends with, and what `reload` does."""
    found = []
    folder = tmp_path_factory.mktemp("undisturbed")
    for run in (
        direct_run(folder / "direct", model_path),
        make_run(folder / "reload", make_config(), model_path),
    ):
        actor = run.actor()
        actor.prepare(step=0)
        run.train(actor, range(NUM_STEPS))
        found.append(run.state_digests(actor, NUM_STEPS) | {"versions": versions(run)})
    remove_segments(folder / "direct")
    return found


def versions(run):
    """The versions on disk, each with its digest."""
    return {v: weights.find(run.store, v).sha256 for v in weights.published_versions(run.store)}


def test_the_bits_are_those_of_reload(undisturbed):
    direct, reload = undisturbed
    for name in ("model.safetensors", "optimizer.pt", "versions"):
        assert direct[name] == reload[name], name


@pytest.mark.parametrize(
    ("stage", "asked"),
    [
        ("while the memory is written", "train_step"),
        ("when it is announced", "prepare"),
        ("when half of the folder is written", "train_step"),
        ("when the folder is whole", "prepare"),
        ("after the result, before the folder", "prepare"),
        ("after the result, before the folder", "train_step"),
    ],
)
def test_a_kill_between_memory_and_disk_changes_no_bit(run, undisturbed, stage, asked):
    killed_in_a_fork(train_until_killed, run, stage)
    done, is_whole = STAGES[stage]
    assert [journal.find_result(run.store, step) is not None for step in range(NUM_STEPS)] == [
        step < done for step in range(NUM_STEPS)
    ]
    assert run.store.path(f"weights/v{KILLED_AT + 1}/manifest.json").exists() == is_whole
    left = set(SHARED_MEMORY.glob(f"{prefix_of(run.store.root)}*"))
    assert left
    second = run.actor()
    if asked == "prepare":  # as after `mortal resume`; otherwise the actor alone was lost
        ready = second.prepare(step=done)
        (version,) = ready.weights
        assert weights.find(run.store, done) == version
        assert not left & set(SHARED_MEMORY.glob(f"{prefix_of(run.store.root)}*"))
    run.train(second, range(done, NUM_STEPS))
    found = run.state_digests(second, NUM_STEPS) | {"versions": versions(run)}
    assert found == undisturbed[0]


def test_workers_can_read_what_a_killed_actor_announced(run):
    killed_in_a_fork(train_until_killed, run, "after the result, before the folder")
    (left,) = SHARED_MEMORY.glob(f"{prefix_of(run.store.root)}*")
    content = left.read_bytes()
    stamp = content.partition(b'"stamp": "')[2][:32].decode()
    with opened(SegmentRef(name=left.name, stamp=stamp)) as shared:
        assert shared.files["manifest.json"]


def test_with_staleness_every_version_that_is_sampled_with_outlasts_a_kill(model_path, tmp_path):
    run = direct_run(tmp_path / "stale", model_path, staleness=2)
    try:
        killed_in_a_fork(train_until_killed, run, "after the result, before the folder")
        assert weights.published_versions(run.store) == [0, 1, 2]
        second = run.actor()
        run.train(second, [3])
        assert [ready.version for ready in second.prepare(step=4).weights] == [2, 3, 4]
        assert weights.published_versions(run.store) == [1, 2, 3, 4]
        assert len(list(SHARED_MEMORY.glob(f"{prefix_of(run.store.root)}*"))) == 2
    finally:
        remove_segments(run.store.root)
