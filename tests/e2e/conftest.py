"""End-to-end runs: the `mortal` command, a real Prefect server, real worker processes."""

import pytest

from mortal.server.choice import prefect_server
from tests.support.command import Mortal
from tests.support.deployments import Prefect
from tests.support.project import write_project


@pytest.fixture
def project(tmp_path):
    write_project(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A Prefect server for the whole session, started as `mortal` starts its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MORTAL_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        patch.delenv("PREFECT_API_URL", raising=False)
        with prefect_server(port=0, keep=False, say=print) as running:
            yield running


@pytest.fixture(scope="session")
def prefect(server):
    """The shipped deployments on the session's server."""
    prefect = Prefect(server.api_url)
    prefect("work-pool", "create", "local", "--type", "process")
    prefect("--no-prompt", "deploy", "--all", "--prefect-file", "deployments/prefect.yaml")
    return prefect


@pytest.fixture
def mortal(project, server):
    return Mortal(project, server.api_url)
