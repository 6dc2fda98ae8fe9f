"""Our own Prefect server: whom it answers, how long it lives, and who may read its files."""

import contextlib
import fcntl
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import websockets

from mortal.driver import PrefectStart
from mortal.server.files import (
    DATABASE,
    living_server,
    opened,
    server_home,
    state_dir,
    try_lock,
)
from mortal.server.local_server import answering, begun_server
from mortal_steps.errors import ConfigError, ServerError
from mortal_steps.store.files import delete_folder, write_json
from mortal_steps.system.processes import ProcessId
from tests.support.deployments import PATIENCE_S
from tests.support.prefect_database import put_database

ELSEWHERE = "https://evil.example"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MORTAL_STATE_DIR", str(tmp_path_factory.mktemp("state")))
        yield server_home()


@pytest.fixture
def state(tmp_path, monkeypatch):
    """The folder of another server, which finds a database with all its tables."""
    monkeypatch.setenv("MORTAL_STATE_DIR", str(tmp_path / "state"))
    put_database(server_home() / DATABASE)
    return tmp_path / "state"


@pytest.fixture(scope="module")
def command(home):
    """`mortal server` as the README starts it, where a proxy is set that reaches nothing."""
    nowhere = {"http_proxy": "http://127.0.0.1:9", "PREFECT_API_URL": "http://127.0.0.1:9/api"}
    often = {"PREFECT_SERVER_SERVICES_DB_VACUUM_LOOP_SECONDS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "mortal", "server", "--port", str(free_port())],
        env={**os.environ, **nowhere, **often},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = []
    while not (said and "Prefect UI: " in said[-1]):
        said.append(process.stdout.readline())
        assert said[-1], "".join(said)
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture(scope="module")
def address(command, home):
    return living_server(home).api_url.removesuffix("/api")


def asks(address, method="POST", path="/api/flows/filter", **headers):
    body = {} if method == "POST" else None
    given = {"json": body, "headers": headers, "trust_env": False, "timeout": 60}
    return httpx.request(method, f"{address}{path}", **given)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": ELSEWHERE},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Host": "evil.example"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "iframe"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "empty"},
    ],
)
def test_another_sites_page_neither_reads_nor_changes_anything(address, headers):
    for answer in (
        asks(address, **headers),
        asks(address, path="/api/flows/", **headers),
        asks(address, "GET", "/api/admin/settings", **headers),
        asks(address, "GET", "/", **headers),
    ):
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


def test_another_sites_page_is_not_promised_anything(address):
    wish = {"Origin": ELSEWHERE, "Access-Control-Request-Method": "POST"}
    for path in ("/api/flows/filter", "/api/deployments/filter"):
        answer = asks(address, "OPTIONS", path, **wish)
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("path", ["/api/events/in", "/api/events/out", "/api/logs/out"])
async def test_another_sites_page_gets_no_websocket(address, path):
    url = address.replace("http", "ws") + path
    with pytest.raises(websockets.InvalidStatus, match="403"):
        await websockets.connect(url, origin=ELSEWHERE, subprotocols=["prefect"], proxy=None)
    own = await websockets.connect(url, origin=address, subprotocols=["prefect"], proxy=None)
    await own.close()


def test_its_own_pages_and_programs_are_answered(address):
    by_name = address.replace("127.0.0.1", "localhost")
    for headers in ({}, {"Origin": address}, {"Origin": by_name, "Host": by_name[7:]}):
        assert asks(address, **headers).status_code == 200
    linked = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}
    assert asks(address, "GET", "/", **linked).status_code < 400


def test_other_users_of_the_machine_cannot_read_its_files(home, address):
    assert home.stat().st_mode & 0o777 == 0o700
    for file in home.glob("prefect.db*"):
        assert file.stat().st_mode & 0o077 == 0, file


def test_a_second_command_uses_it_and_another_port_is_refused(home, address):
    other = [sys.executable, "-m", "mortal", "server", "--port", str(free_port())]
    refused = subprocess.run(other, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert f"{address}/api" in refused.stderr and "--port" in refused.stderr


def test_killed_it_comes_back_at_its_port_with_its_database(home, address):
    made = asks(address, path="/api/flows/")  # needs a name
    assert made.status_code == 422
    httpx.post(f"{address}/api/flows/", json={"name": "kept"}, trust_env=False, timeout=60)
    first = living_server(home).process
    os.kill(first.pid, signal.SIGKILL)

    def is_back():
        now = living_server(home)
        try:
            return now is not None and now.process != first and asks(address).status_code == 200
        except httpx.TransportError:
            return False

    wait_until(is_back, "the server did not come back")
    assert [flow["name"] for flow in asks(address).json()] == ["kept"]


def test_who_wants_to_write_while_another_one_writes_waits_for_its_turn(home, address):
    flow = {"json": {"name": "busy"}, "trust_env": False, "timeout": 60}
    made = httpx.post(f"{address}/api/flows/", **flow).json()
    body = {"flow_id": made["id"], "name": "waits", "state": {"type": "RUNNING"}}
    with (
        contextlib.closing(sqlite3.connect(home / "prefect.db", timeout=60)) as writer,
        ThreadPoolExecutor() as beside,
    ):
        writer.execute("begin immediate")
        asked = beside.submit(
            httpx.post, f"{address}/api/flow_runs/", json=body, trust_env=False, timeout=60
        )
        time.sleep(0.5)
        assert not asked.done()
        writer.rollback()
        answer = asked.result()
    assert answer.status_code == 201
    httpx.delete(f"{address}/api/flow_runs/{answer.json()['id']}", trust_env=False)


def test_flow_runs_that_ended_long_ago_go_with_all_that_is_theirs(home, address):
    def make(kind, **body):
        made = httpx.post(f"{address}/api/{kind}/", json=body, trust_env=False, timeout=60)
        assert made.status_code == 201, made.text
        return made.json()["id"]

    ended = {"state": {"type": "COMPLETED"}}
    flow = make("flows", name="forgotten")
    old, young = (make("flow_runs", flow_id=flow, **ended) for _ in range(2))
    task = make("task_runs", flow_run_id=old, task_key="segment", dynamic_key="0", **ended)
    segment = make("flow_runs", flow_id=flow, parent_task_run_id=task, **ended)
    make("artifacts", key="report", type="markdown", data="done", flow_run_id=old)
    with contextlib.closing(sqlite3.connect(home / "prefect.db", timeout=60)) as db, db:
        aged = "update flow_run set end_time = '2020-01-01 00:00:00' where id in (?, ?)"
        assert db.execute(aged, (old, segment)).rowcount == 2

    def left(kind):
        return [each["id"] for each in asks(address, path=f"/api/{kind}/filter").json()]

    wait_until(lambda: left("flow_runs") == [young], "the server has removed no flow run")
    wait_until(lambda: left("artifacts") == [], "nor its report")
    assert left("task_runs") == []


def test_it_ends_with_the_last_process_that_wants_it(home, command, address):
    server = living_server(home).process
    command.kill()
    wait_until(lambda: not server.lives(), "the server outlived its last user")
    assert living_server(home) is None
    assert not (home / "server.json").exists()
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", int(address.rpartition(":")[2])))


def test_somebody_elses_process_is_not_taken_for_the_server(tmp_path, monkeypatch):
    """Process ids are given out again, and another server may have the port by now."""
    monkeypatch.setenv("MORTAL_STATE_DIR", str(tmp_path))
    home = server_home()
    with subprocess.Popen(["sleep", "600"]) as stranger:
        now = ProcessId.of(stranger.pid)
        for told in (
            {"pid": now.pid, "started": "1", "boot": now.boot},
            {"pid": now.pid, "started": now.started, "boot": "another"},
        ):
            record = {"api_url": "http://127.0.0.1:9/api", "process": told}
            write_json(home / "server.json", record)
            assert living_server(home) is None
            assert not ProcessId(**told).kill()
        old = {"api_url": "http://127.0.0.1:9/api", "process_id": now.pid}
        write_json(home / "server.json", old)
        assert living_server(home) is None
        assert stranger.poll() is None
        assert now.kill()
        assert stranger.wait() == -signal.SIGKILL
    assert state_dir() == tmp_path


def test_a_port_that_there_is_not_is_refused():
    for command in (("server", "--port", "99999"), ("serve", "x", "--port", "99999")):
        refused = subprocess.run(
            [sys.executable, "-m", "mortal", *command], capture_output=True, text=True, check=False
        )
        assert refused.returncode == 2
        assert "65535" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_where_any_port_will_do_one_that_is_taken_is_left_alone(state):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port, said = taken.getsockname()[1], []
        with (
            pytest.raises(ServerError, match=f"port {port} is in use"),
            begun_server([port], said.append),
        ):
            pass
        with begun_server([port, 0], said.append) as begun:
            assert str(port) not in begun.api_url
            assert said == [f"starting a Prefect server at {begun.ui_url} ..."]


def test_a_server_of_another_machine_that_shares_the_folder_is_not_taken_for_dead(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("MORTAL_STATE_DIR", str(tmp_path))
    home = server_home()
    there = {"pid": 1, "started": "1", "boot": "another"}
    record = {"api_url": "http://127.0.0.1:9/api", "process": there}
    write_json(home / "server.json", record)
    with (
        opened(home / "server.lock") as held,
        pytest.raises(ServerError, match=f"server of {home} runs on another machine.*STATE_DIR"),
    ):
        assert try_lock(held, fcntl.LOCK_EX)
        with begun_server([0], print):
            pass
    assert json.loads((home / "server.json").read_text()) == record


def test_a_server_that_was_begun_for_a_run_ends_when_a_check_fails(state, monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    with (
        contextlib.suppress(ConfigError),
        PrefectStart() as prefect,
    ):
        prefect.begin()
        begun = living_server(server_home())
        assert begun is not None
        assert "PREFECT_API_URL" not in os.environ, "it does not answer yet"
        raise ConfigError("a check has failed")
    assert not begun.process.lives()


def test_a_server_that_was_killed_is_started_at_its_port_by_whoever_comes_first(state, monkeypatch):
    for set_by_answering in ("PREFECT_API_URL", "PREFECT_RESULTS_LOCAL_STORAGE_PATH"):
        monkeypatch.setenv(set_by_answering, "")
    with begun_server([0], print) as begun:

        def killed():
            first = living_server(server_home()).process
            assert first.kill()
            wait_until(lambda: not first.lives(), "it was not killed")

        killed()
        with begun_server([0], print) as other:
            assert other.api_url == begun.api_url


def test_a_folder_that_is_deleted_is_told_and_its_server_ends_with_its_users(state, monkeypatch):
    for set_by_answering in ("PREFECT_API_URL", "PREFECT_RESULTS_LOCAL_STORAGE_PATH"):
        monkeypatch.setenv(set_by_answering, "")
    said = []
    with begun_server([0], said.append) as begun, answering(begun, said.append):
        server = living_server(server_home()).process
        delete_folder(server_home())
        wait_until(lambda: any("was deleted" in each for each in said), "nobody was told")
        delete_folder(state)
    wait_until(lambda: not server.lives(), "it stayed")
