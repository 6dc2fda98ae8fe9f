"""What the plane does to apps on purpose: lost containers, a lost line, a bad token."""

import os
import signal
import subprocess
import sys

import modal
import pytest
from modal.exception import AuthError

from .conftest import open_gate, sample_plane
from .plane import ROOT

AWAIT_CALL = """
import sys, modal
call = modal.FunctionCall.from_id(sys.argv[1])
while True:
    try:
        print(call.get(timeout=2), flush=True)
        break
    except TimeoutError:
        pass
    except modal.exception.Error:
        print("error", flush=True)
"""
SPAWN_AND_WAIT = """
import modal
call = modal.Cls.from_name("sample", "Counter")(name="orphan").add.spawn(1, seconds=1)
print(call.object_id, flush=True)
call.get()
"""


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    state = tmp_path_factory.mktemp("plane")
    with sample_plane(state, "--background-commits", "0.1") as plane:
        yield plane


def counter(name):
    return modal.Cls.from_name("sample", "Counter")(name=name)


def start_client(plane, code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env={**os.environ, **plane.env},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("fault", ["kill", "preempt"])
def test_a_lost_containers_input_starts_again_in_another(plane, fault):
    call = counter(fault).wait_for.spawn(fault)
    first = plane.wait_for("input_started", call=call.object_id)["task"]
    getattr(plane, fault)(first)
    plane.wait_for("input_rescheduled", call=call.object_id)
    next_call = counter(fault).wait_for.spawn(fault)
    open_gate(fault)
    second = call.get(timeout=30)
    assert second != first
    assert next_call.get(timeout=30) == second
    assert len(plane.events("input_rescheduled", call=call.object_id)) == 1
    ended = plane.wait_for("container_ended", task=first)
    started = plane.events("container_started", task=second)[0]
    assert ended["why"] == {"kill": "killed", "preempt": "preempted"}[fault]
    assert ended["t"] < started["t"]  # max_containers=1: never two at a time


def test_a_client_that_is_killed_leaves_its_call_to_the_next(plane):
    first = start_client(plane, SPAWN_AND_WAIT)
    call_id = first.stdout.readline().strip()
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert modal.FunctionCall.from_id(call_id).get(timeout=30)[1] == 1
    spawned, attached = plane.events("call_spawned", call=call_id), plane.events("call_attached")
    assert len(spawned) == 1
    assert spawned[0]["by"] != next(e["by"] for e in attached if e["call"] == call_id)
    assert len(plane.events("input_started", call=call_id)) == 1


def test_a_cut_line_fails_requests_and_the_work_goes_on(plane):
    call = counter("cut").wait_for.spawn("cut")
    task = plane.wait_for("input_started", call=call.object_id)["task"]
    client = start_client(plane, AWAIT_CALL, call.object_id)
    plane.wait_for("call_attached", call=call.object_id)
    plane.drop_connections(60)
    with pytest.raises(modal.exception.ConnectionError):
        modal.Function.from_name("sample", "double").remote(1)
    assert client.stdout.readline() == "error\n"
    plane.restore_connections()
    open_gate("cut")  # by the client that was cut off
    assert [line for line in client.stdout if line != "error\n"] == [f"{task}\n"]
    assert len(plane.events("input_started", call=call.object_id)) == 1


def test_a_volume_is_committed_in_the_background(plane):
    writer = counter("background")
    writer.write.remote("unfinished", "text", commit=False)
    task = plane.events("input_started")[-1]["task"]
    volume = modal.Volume.from_name("sample-data")
    plane.wait_until(lambda: "unfinished" in [entry.path for entry in volume.listdir("/")])
    plane.kill(task)
    plane.wait_for("container_ended", task=task)
    assert writer.read.remote("unfinished", reload=True) == "text"


def test_a_client_with_a_bad_token_is_refused(plane):
    with modal.Client.from_credentials("ak-wrong", "as-wrong") as client, pytest.raises(AuthError):
        modal.Function.from_name("sample", "double", client=client).remote(1)


@pytest.mark.parametrize("end", ["killed", "idle"])
def test_nothing_of_a_container_stays(plane, end):
    call = modal.Function.from_name("sample", "start_process").spawn()
    pid = call.get(timeout=30)
    task = plane.events("input_started", call=call.object_id)[0]["task"]
    if end == "killed":
        plane.kill(task)
    assert plane.wait_for("container_ended", task=task)["why"] == end
    plane.wait_until(lambda: not os.path.exists(f"/proc/{pid}"))
