"""The chaos project, four steps of it, on a plane or in this process. Needs no torch."""

import sys

from mortal_steps.plan.loader import load_config
from tests.support.chaos.project import write_project

MORTAL = (sys.executable, "-m", "mortal")
ON_MODAL = ("compute.backend=modal", "compute.modal.scaledown_window_s=60")
STEPS = 4
OWN = """from mortal_steps.policy.algorithms.grpo import GRPO


class Same(GRPO):
    pass
"""
"""An algorithm of the user's own, which has to reach the actor."""
SETTINGS = (
    "algorithm.type=own:Same",
    f"training.max_steps={STEPS}",
    "training.gradient_accumulation_steps=4",  # long enough to be killed in, as is sampling
    "training.num_iterations=2",
    "training.max_completion_length=40",
    "rollout.max_tokens=40",
    "rollout.num_rollout_workers=1",
    "compute.local.actor.threads=1",
    "rollout.num_shards=2",
    "rollout.dtype=float32",  # as on this machine: there are no GPUs in the plane's containers
    "checkpoints.save_steps=2",
    "evaluation.eval_steps=4",
    "evaluation.on_start=false",
)

SHORT = (
    "training.gradient_accumulation_steps=1",
    "training.num_iterations=1",
    "training.max_completion_length=6",
    "rollout.max_tokens=6",
)
"""For runs that nobody hits."""


def project(folder, run_id, *overrides):
    """Return the chaos project in `folder`, four steps of it."""
    folder.mkdir(parents=True, exist_ok=True)
    write_project(folder)
    (folder / "own.py").write_text(OWN)
    config = load_config(folder / "chaos.toml", [*SETTINGS, *overrides])
    return config.model_copy(update={"run_id": run_id, "runs_dir": str(folder / "runs")})


def at(folder):
    """How a user's command is run in their folder."""
    return {"cwd": folder, "env": {"PREFECT_API_URL": ""}}


def assert_same(run, other):
    """Weights, metrics, the chain of states."""
    assert run.manifest.final.weights_sha256 == other.manifest.final.weights_sha256
    assert run.metrics() == other.metrics()
    assert run.is_complete()
