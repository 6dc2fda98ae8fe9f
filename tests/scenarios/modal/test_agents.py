"""Models that call tools, on a control plane of Modal, where the environments' code travels to."""

import shutil

from mortal_steps.plan.loader import load_config
from mortal_steps.runs.run import find_run
from tests.support.modal.project import MORTAL, ON_MODAL, assert_same, at
from tests.support.paths import ROOT

SETTINGS = (
    *("training.max_steps=3", "evaluation.eval_steps=3"),
    *("training.gradient_accumulation_steps=1", "rollout.weight_sync=volume"),
    *("rollout.dtype=float32", "rollout.num_rollout_workers=1", "rollout.num_shards=1"),
    "compute.local.actor.threads=1",
)


def train(plane, folder, run_id, *overrides):
    """Train the agents' demo in a user's folder."""
    shutil.copytree(ROOT / "examples" / "agent", folder / "examples" / "agent", dirs_exist_ok=True)
    shutil.copy(ROOT / "deployments" / "configs" / "agent.toml", folder)
    load_config(folder / "agent.toml", [*SETTINGS, *overrides])
    options = [part for each in (*SETTINGS, *overrides) for part in ("--set", each)]
    plane.run(*MORTAL, "train", "agent.toml", "--run-id", run_id, *options, **at(folder))


def test_an_agent_that_is_trained_on_modal_has_the_bits_of_one_that_is_trained_here(
    plane, tmp_path
):
    train(plane, tmp_path, "agents-here")
    train(plane, tmp_path, "agents-away", *ON_MODAL)
    plane.run(*MORTAL, "fetch", "agents-away", "--all", **at(tmp_path))
    away, here = (find_run(tmp_path / "runs", run_id) for run_id in ("agents-away", "agents-here"))
    assert_same(away, here)
    assert any(row["episodes/turns"] > 1 for row in away.metrics())
    assert all(row["reward_std"] for row in away.metrics()), "nothing was learned from"
