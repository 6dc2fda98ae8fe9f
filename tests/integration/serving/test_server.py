"""A server as a process: started, answering, ended."""

import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import psutil
import pytest

from mortal_steps.errors import ConfigError, EngineError
from mortal_steps.serving.commands import Endpoint, ServerCommand, look_at
from mortal_steps.serving.folder import PREFIX, scratch
from mortal_steps.serving.server import free_port, running
from mortal_steps.system.processes import start_of

ANSWERS = """
import http.server, signal, sys
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
if len(sys.argv) > 2: signal.signal(signal.SIGTERM, signal.SIG_IGN)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Health).serve_forever()
"""
OWNER = """
import sys, pathlib, time
from mortal_steps.serving.commands import Endpoint, ServerCommand
from mortal_steps.serving.server import running
port = int(sys.argv[1])
command = ServerCommand(engine="e", arguments=(sys.executable, "-c", sys.argv[2], sys.argv[1]),
                        environment={})
with running(command, Endpoint(host="127.0.0.1", port=port), pathlib.Path(sys.argv[3])) as server:
    print(server.pid, flush=True)
    time.sleep(60)
"""


def command(code, *arguments):
    return ServerCommand(
        engine="vllm",
        arguments=(sys.executable, "-c", code, *arguments),
        environment={"NAMED": "here"},
        remedies={"memory": "take less of it"},
    )


def anywhere():
    return free_port(Endpoint(host="127.0.0.1", port=0))


def test_a_server_answers_inside_the_block_and_is_gone_after_it(tmp_path):
    endpoint = anywhere()
    log = tmp_path / "log"
    with running(command(ANSWERS, str(endpoint.port)), endpoint, log) as process:
        url = f"http://127.0.0.1:{endpoint.port}/health"
        assert httpx.get(url, trust_env=False).status_code == 200
    assert process.returncode == -signal.SIGTERM
    assert start_of(process.pid) is None


def test_a_server_that_will_not_end_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("mortal_steps.serving.server.ENDS_WITHIN_S", 0.2)
    endpoint = anywhere()
    stays = command(ANSWERS, str(endpoint.port), "stay")
    with running(stays, endpoint, tmp_path / "log") as process:
        pass
    assert process.returncode == -signal.SIGKILL


def test_a_server_ends_with_its_owner_however_that_ends(tmp_path):
    port = str(anywhere().port)
    arguments = [sys.executable, "-c", OWNER, port, ANSWERS, str(tmp_path / "log")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as owner:
        members = family_of(int(owner.stdout.readline()))
        assert len(members) == 2
        owner.kill()
    deadline = time.monotonic() + 30
    while any(start_of(pid) is not None for pid in members):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def family_of(supervisor):
    children = psutil.Process(supervisor).children(recursive=True)
    return [supervisor, *(child.pid for child in children)]


def test_a_server_that_does_not_start_shows_its_last_lines_and_a_remedy(tmp_path):
    fails = command("import os, sys; sys.exit('not enough memory, ' + os.environ['NAMED'])")
    with (
        pytest.raises(
            EngineError, match=r"code 1; its last lines:\n +not enough memory, here\ntake less"
        ),
        running(fails, anywhere(), tmp_path / "log"),
    ):
        pass


def test_a_port_that_is_taken_is_told_before_anything_starts():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}.*--port 0 for a free one"):
            free_port(Endpoint(host="127.0.0.1", port=port))


def test_what_a_killed_server_left_is_removed_and_what_another_one_uses_is_not(tmp_path):
    left = tmp_path / f"{PREFIX}left1234"
    left.mkdir()
    with scratch(tmp_path) as one:
        assert not left.exists()
        with scratch(tmp_path) as another:
            assert one.is_dir()
            assert another != one
    assert os.listdir(tmp_path) == []


def test_an_interpreter_tells_whether_it_has_vllm(tmp_path):
    assert not look_at(sys.executable).vllm
    with pytest.raises(ConfigError, match=r"no Python at .*nowhere"):
        look_at(str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="ended with code"):
        look_at("/bin/false")
