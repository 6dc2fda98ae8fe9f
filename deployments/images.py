"""The images of the containers. Versions stand in requirements/ alone: those that the tests use."""

import hashlib
import json
import os
from pathlib import Path

import modal

from mortal_steps.config import ModalConfig
from mortal_steps.places.modal.inside.compiled import PINS
from mortal_steps.places.modal.release import CLUSTER_VARIABLE, VOLUME_VARIABLE, Cluster
from mortal_steps.rollout.engines.table import VLLM_PYTHON

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements"
"""In a wheel; in a checkout they lie beside the package."""
if not REQUIREMENTS.is_dir():
    REQUIREMENTS = HERE.parent / "requirements"
PYTHON = "3.11"
UV = "0.9.9"
VLLM_ENVIRONMENT = "/opt/vllm"
CUDA = "nvidia/cuda:13.0.1-devel-ubuntu24.04"
PLATFORM = "x86_64-manylinux_2_39"
"""Wheels that this image can take."""
VOLUME = os.environ.get(VOLUME_VARIABLE, ModalConfig().volume)
"""Holds the runs. `mortal deploy` says which it is, and the images tell the containers, where this
module is imported again."""
TOGETHER = os.environ.get(CLUSTER_VARIABLE, "")
CLUSTER = Cluster(**json.loads(TOGETHER)) if TOGETHER else None
"""The same, of actors in several containers."""
TRAINER = ("constraints.txt", "cuda.constraints.txt")
"""All that is in the environment of flow, actor and rewards."""
VLLM = ("vllm-gpu.constraints.txt",)
"""All that is in the environment with vLLM."""
ENVIRONMENT = {
    VOLUME_VARIABLE: VOLUME,
    CLUSTER_VARIABLE: TOGETHER,
    "HF_HOME": "/hub",
    "HF_HUB_DISABLE_TELEMETRY": "1",  # which TRL would send of each trainer
    "OMP_WAIT_POLICY": "PASSIVE",  # threads that spin take the cores from the container's others
}


def _vllm_pins() -> dict[str, str]:
    """Return what tells containers with vLLM which versions they have; these know it already."""
    if not modal.is_local():
        return {}
    return {PINS: hashlib.sha256((REQUIREMENTS / VLLM[0]).read_bytes()).hexdigest()[:16]}


def _installed(*requirements: str) -> modal.Image:
    files = [str(REQUIREMENTS / name) for name in requirements]
    base = modal.Image.from_registry(CUDA, add_python=PYTHON).entrypoint([])
    return base.uv_pip_install(requirements=files, uv_version=UV).env(ENVIRONMENT)


_project = _installed(*TRAINER)
"""The environment of flow and tests, to the version."""

trainer_image = _project.add_local_python_source("mortal", "mortal_steps", "mortal_deployments")
"""Actor, transformers rollout workers, rewards, and what needs no GPU. Users' code takes
`mortal.rewards` from MORTAL."""

orchestrator_image = _project.add_local_python_source(
    *("mortal", "mortal_flows", "mortal_tasks", "mortal_steps", "mortal_deployments"),
    ignore=~modal.FilePatternMatcher("**/*.py", "**/*.sql"),  # the tables of its Prefect server
)
"""The flow itself."""

vllm_image = (
    _installed(*VLLM)
    .env(_vllm_pins())
    .add_local_python_source("mortal", "mortal_steps", "mortal_deployments")
)
"""vLLM rollout workers."""

node_image = (
    _project.add_local_dir(REQUIREMENTS, "/requirements", copy=True)
    .run_commands(
        f"python -m venv {VLLM_ENVIRONMENT}",
        f"{VLLM_ENVIRONMENT}/bin/pip install "
        + " ".join(f"--requirement=/requirements/{name}" for name in VLLM),
    )
    .env({VLLM_PYTHON: f"{VLLM_ENVIRONMENT}/bin/python", **_vllm_pins()})
    .add_local_python_source("mortal", "mortal_steps", "mortal_deployments")
)
"""Single-node mode: the trainer's environment and, beside it, vLLM's."""
