"""Fixtures of end-to-end runs: the `mortal` command, a real Prefect server, real workers."""

import pytest

from tests.support.command import Mortal
from tests.support.deployments import Prefect
from tests.support.project import write_project
from tests.support.server import server_of_its_own


@pytest.fixture
def project(tmp_path):
    write_project(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A Prefect server for the whole session."""
    with server_of_its_own(tmp_path_factory.mktemp("state")) as running:
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
