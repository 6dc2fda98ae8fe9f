"""Killed at one commit after the other, in the middle of whatever it was about."""

import random

import pytest

from mortal_steps.orchestration.opening import create_run
from mortal_steps.policy.weights import weights_digest
from mortal_steps.runs.run import find_run
from mortal_steps.runs.verify import check_run
from tests.support.bare_flow import Killed, go_on, project_config
from tests.support.commits import in_a_process_killed_at, leftovers

NUM_KILLS = 6


def test_a_run_killed_at_its_commits_ends_with_the_same_bits(project, patch):
    config = project_config(project)
    in_whole = config.model_copy(update={"runs_dir": str(project / "whole")})
    in_killed = config.model_copy(update={"runs_dir": str(project / "killed")})
    whole = go_on(in_whole)
    with pytest.raises(Killed):
        go_on(in_killed, killed_after=0)
    assert find_run(project / "killed", "run").status() == "interrupted"
    root = project / "killed" / "run"
    choice = random.Random(3)
    kills = 0
    for _ in range(NUM_KILLS):
        nth, after = choice.randint(1, 30), choice.random() < 0.5
        kills += in_a_process_killed_at(nth, after, lambda: go_on(in_killed))
    assert kills == NUM_KILLS
    killed = go_on(in_killed)
    assert killed.manifest.status == "completed"
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        assert (root / name).read_bytes() == whole.store.path(name).read_bytes()
    assert weights_digest(root / "final") == weights_digest(whole.store.path("final"))
    assert [file for file in check_run(root.parent, "run").files() if file.damage] == []
    assert leftovers(root.parent) == []


@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5])
def test_a_run_killed_while_it_is_created_is_created_again(project, nth):
    runs_dir = project / f"created-{nth}"
    config = project_config(project).model_copy(update={"runs_dir": str(runs_dir)})
    root = runs_dir / "run"
    assert in_a_process_killed_at(nth, False, lambda: create_run(root, config, [], []))
    assert not (root / "run.json").exists()
    create_run(root, config, [], [])
    assert find_run(runs_dir, "run").status() == "created"
    assert leftovers(root) == []
