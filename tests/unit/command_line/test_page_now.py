"""Where `mortal show` says that the page of a run opens."""

import os
import socket

import pytest

from mortal.server.files import ServerRecord, server_home, write_record
from mortal.terminal.display import page_now
from mortal_steps.system.processes import ProcessId

PAGE = "/runs/flow-run/1"


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """The page of a server that is gone: nobody listens at its port."""
    monkeypatch.setenv("MORTAL_STATE_DIR", str(tmp_path))
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{nobody_listens.getsockname()[1]}{PAGE}"


def test_a_server_that_came_back_at_another_port_is_found(recorded):
    assert page_now(recorded) is None
    moved = ServerRecord(
        api_url="http://127.0.0.1:4299/api",
        process=ProcessId.of(os.getpid()),
        keep=False,
        database="",
    )
    write_record(server_home(), moved)
    assert page_now(recorded) == f"http://127.0.0.1:4299{PAGE}"


def test_a_page_of_a_server_that_listens_or_is_elsewhere_stays():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here = f"http://127.0.0.1:{listening.getsockname()[1]}{PAGE}"
        assert page_now(here) == here
    elsewhere = f"https://prefect.example{PAGE}"
    assert page_now(elsewhere) == elsewhere
    assert page_now(None) is None
