"""A Prefect server that cannot be used is named before anything is made."""

import socket
from pathlib import Path

import pytest

from mortal.driver import drive
from mortal_steps.errors import (
    ServerError,
)
from mortal_steps.plan.loader import load_config
from tests.support.project import write_project


def test_a_port_in_use_is_named(tmp_path, monkeypatch):
    from mortal.server.select_server import prefect_server

    monkeypatch.setenv("MORTAL_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with (
            pytest.raises(ServerError, match=f"port {port} is in use"),
            prefect_server(print, [port]),
        ):
            pytest.fail("started on a taken port")


def test_a_server_that_is_not_there_is_named_before_anything_is_made(tmp_path, monkeypatch):
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    with pytest.raises(ServerError, match="does not answer"):
        drive(load_config(Path("tiny.toml")))
    assert not Path("runs").exists()


def test_a_configured_server_must_answer(monkeypatch):
    from mortal.server.select_server import prefect_server

    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    with (
        pytest.raises(
            ServerError, match=r"PREFECT_API_URL = http://127.0.0.1:9/api does not answer"
        ),
        prefect_server(print),
    ):
        pytest.fail("accepted a server that is not there")
