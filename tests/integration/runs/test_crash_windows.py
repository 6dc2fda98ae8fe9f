"""Killed at one commit after the other, in the middle of whatever it was about."""

import random

import pytest

from mortal_steps.orchestration.open_run import create_run
from mortal_steps.policy.on_disk.weights import weights_digest
from mortal_steps.rollout.engines.model_files import is_adapter
from mortal_steps.rollout.engines.transformers.adapter import AdaptedModel
from mortal_steps.runs.run import find_run
from mortal_steps.runs.verify import check_run
from tests.support.bare_flow import Killed, go_on, project_config
from tests.support.commits import in_a_process_killed_at, leftovers

NUM_KILLS = {"full": 4, "adapter": 1}
SETUPS = {
    "full": {"training.max_steps": 8},
    "adapter": {"training.use_lora": "true", "training.lora.r": 2},
}


@pytest.mark.parametrize("setup", SETUPS)
def test_a_run_killed_at_its_commits_ends_with_the_same_bits(project, patch, setup):
    config = project_config(project, **SETUPS[setup])
    in_whole = config.model_copy(update={"runs_dir": str(project / setup / "whole")})
    in_killed = config.model_copy(update={"runs_dir": str(project / setup / "killed")})
    whole = go_on(in_whole)
    with pytest.raises(Killed):
        go_on(in_killed, killed_after=0)
    root = project / setup / "killed" / "run"
    assert find_run(root.parent, "run").status() == "interrupted"
    choice = random.Random(3)
    places = [(choice.randint(1, 30), choice.random() < 0.5) for _ in range(NUM_KILLS[setup])]
    kills = [in_a_process_killed_at(*place, lambda: go_on(in_killed)) for place in places]
    if setup == "adapter":  # before a worker takes over its tensors, and between that and the proof
        assert is_adapter(whole.store.path("final"))
        sync = (AdaptedModel, "load")
        for after in (False, True):
            kills.append(in_a_process_killed_at(2, after, lambda: go_on(in_killed), sync))
    assert all(kills)
    killed = go_on(in_killed)
    assert killed.manifest.status == "completed"
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        assert (root / name).read_bytes() == whole.store.path(name).read_bytes()
    assert weights_digest(root / "final") == weights_digest(whole.store.path("final"))
    assert [file for file in check_run(root.parent, "run").files if file.damage] == []
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
