"""Fixtures of end-to-end runs: the `mortal` command, a real Prefect server, real workers."""

import pytest
from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker
from prefect.workers.process import ProcessWorker

from mortal.server.files import LOG
from tests.support.command import Mortal
from tests.support.database import ASKED_FOR
from tests.support.deployments import Prefect
from tests.support.project import write_project
from tests.support.server import server_of_its_own

LOST_EVENT = "Failed in consume_loop"
"""What the server logs when no automation sees an event any more: its SQLite was busy."""


@pytest.fixture
def project(tmp_path):
    write_project(tmp_path)
    return tmp_path


@pytest.fixture(scope="package")
def server(tmp_path_factory):
    """A Prefect server for all tests of a folder."""
    state = tmp_path_factory.mktemp("state")
    with server_of_its_own(state) as running:
        yield running
        for tells in (APILogWorker, EventsWorker):
            tells.drain_all(timeout=10)  # at its exit pytest would ask a server that is gone
        if ASKED_FOR == "postgresql":
            assert LOST_EVENT not in (state / "prefect" / LOG).read_text()


@pytest.fixture(scope="package")
def prefect(server):
    """The shipped deployments on that server."""
    prefect = Prefect(server.api_url)
    template = ProcessWorker.get_default_base_job_template()
    for name in ("local", "modal"):
        pool = {"name": name, "type": "process", "base_job_template": template}
        assert prefect.http.post("/work_pools/", json=pool).status_code == 201
    prefect("--no-prompt", "deploy", "--all", "--prefect-file", "deployments/prefect.yaml")
    return prefect


@pytest.fixture
def mortal(project, server):
    return Mortal(project, server.api_url)
