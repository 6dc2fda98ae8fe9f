"""The images of the containers. Versions stand in requirements/ alone: what the tests use."""

from __future__ import annotations

from pathlib import Path

import modal

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements"
PYTHON = "3.11"
UV = "0.9.9"
CUDA = "nvidia/cuda:13.0.1-devel-ubuntu24.04"
SOURCES = ("mortal_steps", "deployments")
ENVIRONMENT = {
    "HF_HOME": "/hub",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def _with_python(*requirements: str) -> modal.Image:
    files = [str(REQUIREMENTS / name) for name in requirements]
    base = modal.Image.from_registry(CUDA, add_python=PYTHON).entrypoint([])
    installed = base.uv_pip_install(requirements=files, uv_version=UV)
    return installed.env(ENVIRONMENT).add_local_python_source(*SOURCES)


trainer_image = _with_python("constraints.txt")
"""Actor, transformers rollout workers, rewards: the environment of flow and tests, exactly."""

vllm_image = _with_python("vllm-gpu.txt")
"""vLLM rollout workers."""
