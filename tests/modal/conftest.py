"""The project's app on a control plane of its own; this process is a client of it."""

import contextlib
import sys

import pytest

from benchmarks.chaos.project import write_project
from mortal_steps.config.loader import load_config
from tests import bare_flow
from tests.conftest import VLLM_PYTHON
from tests.modal_plane.fixtures import namespaces
from tests.modal_plane.plane import ModalPlane, client_environment

__all__ = ["namespaces"]

STEPS = 4
SETTINGS = (
    f"training.max_steps={STEPS}",
    "training.gradient_accumulation_steps=4",  # long enough to be killed in, as is sampling
    "training.num_iterations=2",
    "training.max_completion_length=40",
    "rollout.max_tokens=40",
    "rollout.num_rollout_workers=1",
    "compute.local.actor.threads=1",
    "rollout.num_shards=2",
    "checkpoints.save_steps=2",
    "evaluation.eval_steps=4",
    "evaluation.on_start=false",
)


def project(folder, run_id, *overrides):
    """The chaos project in `folder`, four steps of it."""
    folder.mkdir(parents=True, exist_ok=True)
    write_project(folder)
    config = load_config(folder / "chaos.toml", [*SETTINGS, *overrides])
    return config.model_copy(update={"run_id": run_id, "runs_dir": str(folder / "runs")})


@pytest.fixture(scope="package")
def deployed(tmp_path_factory):
    """A plane with the app; containers are offline and their grace periods short. vLLM's image is
    the environment that has it, that of single-node mode the one of everybody else."""
    state = tmp_path_factory.mktemp("plane")
    options = ["--env", "HF_HUB_OFFLINE=1", "--preemption-grace", "10", "--timeout-grace", "1"]
    options += ["--python", f"/opt/vllm={sys.executable}", "--python", f"vllm={VLLM_PYTHON}"]
    with ModalPlane(state, *options) as plane:
        plane.run(sys.executable, "-m", "mortal", "deploy", env={"PREFECT_API_URL": ""})
        yield plane


@pytest.fixture(scope="module")
def plane(deployed):
    """The plane; this process is its client. Between two modules others may be client elsewhere."""
    with client_environment(deployed):
        yield deployed


@pytest.fixture(scope="package")
def here(tmp_path_factory):
    """The run of the project in this process."""
    folder = tmp_path_factory.mktemp("here")
    with bare(folder):
        return bare_flow.go_on(project(folder, "here"))


@contextlib.contextmanager
def bare(folder):
    """In the folder, for the time of the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield patch
