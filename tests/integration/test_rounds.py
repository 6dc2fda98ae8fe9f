"""A batch source of the user's own samples a step in two rounds and keeps a part of the groups:
docs/extending.md, as it stands. Killed between the rounds, with other workers: the same bits."""

import signal

import pytest

from mortal_steps.policy.batches import ScoredRollouts
from mortal_steps.policy.journal import find_entry
from mortal_steps.runs.run import find_run
from mortal_steps.runs.verify import check_run
from mortal_steps.types import GeneratedShard
from tests.support.docs_examples import write_modules
from tests.support.extending import PAGE, STEPS, configure, train
from tests.support.project import write_project

ROUNDS = "Several rounds in a step"
KILLED_ONCE = """
import os, pathlib, signal

from refill import Refill

class KilledOnce(Refill):
    async def sample(self, step, round, rows, weights):
        mark = pathlib.Path("killed")
        if round == 1 and step >= 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().sample(step, round, rows, weights)
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run with one rollout worker, and the same with three workers that was killed."""
    project = tmp_path_factory.mktemp("project")
    write_project(project)
    write_modules(PAGE, ROUNDS, project)
    (project / "killed_once.py").write_text(KILLED_ONCE)
    (script,) = write_modules(PAGE, "The loop without Prefect", project)
    configure(project, "whole", ROUNDS)
    configure(project, "killed", ROUNDS, source="killed_once:KilledOnce", num_rollout_workers=3)

    assert train(script, "whole") == 0
    assert train(script, "killed") == -signal.SIGKILL
    assert train(script, "killed") == 0
    return {name: find_run(project / "runs", name) for name in ("whole", "killed")}


def batch_of(run, step) -> ScoredRollouts:
    return find_entry(run.store, step).request.batch


def test_killed_between_the_rounds_it_ends_with_the_same_bits(runs):
    whole, killed = runs["whole"], runs["killed"]
    assert killed.manifest.attempts == 2
    assert killed.manifest.final.weights_sha256 == whole.manifest.final.weights_sha256
    for step in range(STEPS):
        one, other = batch_of(whole, step), batch_of(killed, step)
        assert (one.kept, one.cursor) == (other.kept, other.cursor)
        files = [[shard.generation.file.sha256 for shard in batch.shards] for batch in (one, other)]
        assert files[0] == files[1]
    assert [row["loss"] for row in killed.metrics()] == [row["loss"] for row in whole.metrics()]


def test_a_second_round_is_sampled_of_other_problems_and_a_part_is_kept(runs):
    run = runs["whole"]
    size = run.config.training.batch_size
    rounds = {step: len(batch_of(run, step).shards) // 3 for step in range(STEPS)}
    assert set(rounds.values()) <= {1, 2} and 2 in rounds.values()
    drawn = 0
    for step, count in rounds.items():
        batch = batch_of(run, step)
        drawn += size * count
        assert batch.cursor == drawn
        assert len(batch.kept) == size == run.metrics()[step]["num_kept_groups"]
        assert [shard.shard for shard in batch.shards] == list(range(3 * count))
        asked = [
            group.problem.id
            for shard in batch.shards
            for group in run.store.read_record(shard.generation.file, GeneratedShard).groups
        ]
        assert len(asked) == len(set(asked)) == size * count


def test_what_was_not_kept_is_whole_and_counted_too(runs):
    run = runs["killed"]
    report = check_run(run.store.root.parent, "killed")
    assert [file for file in report.files if file.damage] == []
    assert report.num_linked == STEPS
