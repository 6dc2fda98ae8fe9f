"""Training on several ranks in one container of a control plane of Modal."""

from mortal_steps.runs.run import find_run
from tests.support.chaos.project import write_project
from tests.support.modal.project import MORTAL, ON_MODAL, assert_same, at

SETTINGS = (
    *("training.max_steps=3", "training.ranks=2", "training.sharding=full"),
    *("rollout.num_rollout_workers=1", "rollout.num_shards=1", "rollout.weight_sync=volume"),
    *("rollout.dtype=float32", "training.gradient_accumulation_steps=1"),
    *("evaluation.eval_steps=3", "checkpoints.save_steps=2"),
)
TWO_GPUS = ("compute.modal.actor=H100:2",)


def train(plane, folder, run_id, *overrides):
    """Train the chaos project in a user's folder."""
    write_project(folder)
    options = [part for each in (*SETTINGS, *overrides) for part in ("--set", each)]
    plane.run(*MORTAL, "train", "chaos.toml", "--run-id", run_id, *options, **at(folder))


def test_ranks_in_a_container_have_the_bits_of_those_here(plane, tmp_path):
    train(plane, tmp_path, "ranks-here")
    train(plane, tmp_path, "ranks-away", *ON_MODAL, *TWO_GPUS)
    plane.run(*MORTAL, "fetch", "ranks-away", "--all", **at(tmp_path))
    away, here = (find_run(tmp_path / "runs", run_id) for run_id in ("ranks-away", "ranks-here"))
    assert_same(away, here)
    assert all(row["grad_norm"] for row in away.metrics()), "nothing was learned from"
