"""A rollout worker that is killed in the middle of episodes: same bits, and no effect twice."""

import functools
import time
from pathlib import Path

import pytest

from mortal_steps.environments.ledger import Answered, SampledRound
from mortal_steps.rewards.source_history import RewardSources, find_history, write_history
from mortal_steps.rewards.sources import find_sources
from mortal_steps.store import RunStore
from mortal_steps.store.files import digest_file
from mortal_steps.store.line_files import LineFiles
from mortal_steps.types import GeneratedShard
from tests.support.environments import killed_shard
from tests.support.forking.holder import LIGHT
from tests.support.training_forks import training_forks

FORKS = training_forks()
SHARD = "run/steps/000000/generations-0.parquet"
PATIENCE_S = 120


def begin(folder, factory, held_after=None):
    (folder / "effects").touch()
    args = (folder, factory, LIGHT.given(), held_after)
    process = FORKS.Process(target=killed_shard.sample_shard, args=args, daemon=True)
    process.start()
    return process


def whole(folder, factory):
    """Sample the shard to its end; return its digest."""
    process = begin(folder, factory)
    process.join(PATIENCE_S)
    assert process.exitcode == 0
    return digest_file(folder / SHARD)


def kill_after(folder, factory, num_effects):
    """SIGKILL to the worker once so many calls have begun."""
    process = begin(folder, factory, held_after=num_effects)
    deadline = time.monotonic() + PATIENCE_S
    while len(effects_of(folder)) < num_effects:
        assert process.exitcode is None and time.monotonic() < deadline
        time.sleep(0.005)
    process.kill()
    process.join()


def effects_of(folder):
    """The calls that were made, without the seeds in their ids."""
    parts = [call.split("/") for call in (folder / "effects").read_text().split()]
    return ["/".join([*episode, number]) for *episode, _, number in parts]


def sampled_in(folder):
    """The batches that an engine was asked for, by their sizes."""
    return (folder / "sampled").read_text().split()


def rounds_in(folder):
    """The sizes of the recorded ones."""
    begun = (folder / SHARD).with_name("generations-0-calls") / "begun"
    found = [
        each for turns in begun.glob("turns-*") for each in LineFiles(turns, SampledRound).new()
    ]
    return [str(len(each.lengths)) for _, each in found]


def recorded_in(folder):
    """The calls whose answers are recorded."""
    calls = []
    answered = LineFiles((folder / SHARD).with_name("generations-0-calls") / "begun", Answered)
    for record in (found for _, found in answered.new() if found.answers[0].name != "reset"):
        so_far = sum(call.startswith(f"{record.episode}/") for call in calls)
        calls += [f"{record.episode}/{so_far + n}" for n in range(len(record.answers))]
    return calls


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Digest, effects and batches of the shard of a factory."""

    @functools.cache
    def of(factory):
        folder = tmp_path_factory.mktemp("whole")
        return whole(folder, factory), effects_of(folder), sampled_in(folder)

    return of


@pytest.mark.parametrize("factory", ["-", "Saved"])
def test_what_keeps_no_state_or_saves_it_is_not_called_again_for_a_recorded_answer(
    undisturbed, tmp_path, factory
):
    digest, effects, _ = undisturbed(factory)
    kill_after(tmp_path, factory, 7)
    recorded = recorded_in(tmp_path)
    assert recorded
    before = len(effects_of(tmp_path))
    assert whole(tmp_path, factory) == digest
    again = effects_of(tmp_path)[before:]
    assert set(again).isdisjoint(recorded)
    assert set(effects_of(tmp_path)) == set(effects)


@pytest.mark.parametrize(("factory", "num_effects"), [("Noted", 9), ("Talked", 11), ("agent", 5)])
def test_an_environment_that_cannot_save_is_called_again_and_so_brought_back(
    undisturbed, tmp_path, factory, num_effects
):
    digest, effects, batches = undisturbed(factory)
    kill_after(tmp_path, factory, num_effects)
    rounds, before = rounds_in(tmp_path), len(sampled_in(tmp_path))
    assert rounds == batches[: len(rounds)] != []
    assert whole(tmp_path, factory) == digest
    assert set(effects_of(tmp_path)) == set(effects)
    assert sampled_in(tmp_path)[before:] == batches[len(rounds) :], "recorded ones are not sampled"
    assert rounds_in(tmp_path) == [], "the shard has them"


@pytest.mark.parametrize(
    ("factory", "parts"),
    [
        ("Clock", ("tool add: add(amount=", " at ")),
        ("Morning", ("reset", "It is ")),
        ("dated", ("agent", "It is ")),
    ],
)
def test_an_answer_that_changed_is_named_and_the_episode_goes_on(tmp_path, factory, parts):
    kill_after(tmp_path, factory, 7)
    recorded = {call.rpartition("/")[0] for call in recorded_in(tmp_path)}
    assert recorded
    whole(tmp_path, factory)
    _, shard = RunStore(tmp_path / "run").find_record(
        "steps/000000/generations-0.parquet", GeneratedShard
    )
    found = {
        f"{group.problem.id}/{number}": made
        for group in shard.groups
        for number, made in enumerate(group.completions)
        if made.differing_answer is not None
    }
    assert found.keys() >= recorded
    for made in found.values():
        assert all(part in made.differing_answer for part in parts)
        assert made.episode.failure is None


def test_answers_of_code_that_was_edited_are_not_those_of_the_edited_one(tmp_path):
    """Whoever accepts it says so once; the run is killed again, and resumed without a word."""
    store = RunStore(tmp_path / "run")
    edited = find_sources(["tests.support.environments.code:seen"], Path.cwd())
    began = RewardSources(files=dict.fromkeys(edited.files, "another"))
    kill_after(tmp_path, "-", 7)
    recorded = recorded_in(tmp_path)
    assert recorded
    write_history(store, (), began, 0)
    write_history(store, find_history(store), edited, 0)
    before = len(effects_of(tmp_path))
    whole(tmp_path, "-")
    assert set(recorded) <= set(effects_of(tmp_path)[before:]), "the edited code is asked"
