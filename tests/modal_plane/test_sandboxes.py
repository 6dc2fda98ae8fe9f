"""Sandboxes, by the real client."""

import os

import modal
import pytest
from modal.exception import SandboxTimeoutError

from .plane import client_environment


@pytest.fixture(scope="module")
def sandboxes(modal_plane):
    """Makes sandboxes of an app of their own."""
    with client_environment(modal_plane):
        app = modal.App.lookup("sandboxes", create_if_missing=True)
        yield lambda *command, **options: modal.Sandbox.create(*command, app=app, **options)


def test_commands_run_in_a_sandbox(sandboxes, modal_plane):
    sandbox = sandboxes(timeout=60, env={"SAMPLE": "known"})
    process = sandbox.exec("sh", "-c", "read line; echo $line $SAMPLE; echo oops >&2; exit 3")
    process.stdin.write("hello\n")
    process.stdin.write_eof()
    process.stdin.drain()
    assert (process.wait(), process.stdout.read(), process.stderr.read()) == (
        3,
        "hello known\n",
        "oops\n",
    )
    slow = sandbox.exec("sleep", "60", timeout=1)
    assert slow.wait() != 0
    sandbox.exec("sh", "-c", "echo text > /root/file").wait()
    assert sandbox.exec("cat", "/root/file").stdout.read() == "text\n"
    assert not os.path.exists("/root/file")
    left = sandbox.exec("sh", "-c", "setsid sleep 300 >/dev/null 2>&1 & echo $!").stdout.read()
    sandbox.terminate()
    modal_plane.wait_until(lambda: not os.path.exists(f"/proc/{int(left)}"))
    sandbox.wait(raise_on_termination=False)
    assert sandbox.returncode == 137


def test_a_sandbox_ends_with_its_command_or_its_timeout(sandboxes):
    done = sandboxes("sh", "-c", "echo done; exit 4", timeout=60)
    done.wait(raise_on_termination=False)
    assert (done.returncode, done.stdout.read()) == (4, "done\n")
    late = sandboxes("sleep", "60", timeout=1)
    with pytest.raises(SandboxTimeoutError):
        late.wait()


def test_a_blocked_network_cannot_be_reached(sandboxes, modal_plane):
    host, port = modal_plane.env["MODAL_SERVER_URL"].removeprefix("http://").split(":")
    connect = f"import socket; socket.create_connection(({host!r}, {port}), 2)"
    open_one = sandboxes("python3", "-c", connect, timeout=60)
    open_one.wait(raise_on_termination=False)
    blocked = sandboxes("python3", "-c", connect, timeout=60, block_network=True)
    blocked.wait(raise_on_termination=False)
    assert (open_one.returncode, blocked.returncode) == (0, 1)
