"""Fixtures: the project's app on a control plane of its own; this process is a client of it."""

import sys

import pytest

from tests.modal_plane.plane import ModalPlane, client_environment
from tests.support import bare_flow
from tests.support.modal.project import project
from tests.support.modal.sources import hidden_sources
from tests.support.paths import VLLM_PYTHON


@pytest.fixture(scope="package")
def deployed(tmp_path_factory):
    """A plane with the app; containers are offline and their grace periods short. vLLM's image is
    the environment that has it, that of single-node mode the one of everybody else. Containers see
    this machine's files, so they have a state folder of their own beside the user's."""
    state = tmp_path_factory.mktemp("plane")
    options = ["--env", "HF_HUB_OFFLINE=1", "--preemption-grace", "10", "--timeout-grace", "1"]
    options += ["--env", f"MORTAL_STATE_DIR={state}/mortal"]
    options += ["--python", f"/opt/vllm={sys.executable}", "--python", f"vllm={VLLM_PYTHON}"]
    with ModalPlane(state, *hidden_sources(), *options) as plane:
        plane.run(sys.executable, "-m", "mortal", "deploy", env={"PREFECT_API_URL": ""})
        yield plane


@pytest.fixture(scope="module")
def plane(deployed):
    """The plane; this process is its client. Between two modules others may be client elsewhere."""
    with client_environment(deployed), pytest.MonkeyPatch.context() as patch:
        patch.setenv("MORTAL_STATE_DIR", str(deployed.directory / "mortal"))
        yield deployed


@pytest.fixture(scope="package")
def here(tmp_path_factory):
    """The run of the project in this process."""
    folder = tmp_path_factory.mktemp("here")
    with bare_flow.bare_in(folder):
        return bare_flow.go_on(project(folder, "here"))
