"""mortal_steps.hosts.process: a host runs what is no reward, too, and its owner outlives it."""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from mortal_steps.errors import DataError, TransientError, WorkerError, WorkerLostError
from mortal_steps.hosts import base
from mortal_steps.hosts.base import HostLostError
from mortal_steps.hosts.process import HostProcess
from tests.support.docs_examples import write_modules
from tests.support.paths import ROOT
from tests.support.rewards.processes import assert_ends, is_alive

COUNTER = "tests.integration.hosts.counter:WordCounter"
PATIENCE_S = 30.0


@pytest.fixture(autouse=True)
def found(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(base, "GRACE_S", 0.1)


@pytest.fixture
def host():
    made = HostProcess(COUNTER, {"ignored": ["the"]}, passed_on=["WANDB_API_KEY"])
    yield made
    made.close()


def count(host, text):
    return host.call("count", returns=dict[str, int], timeout_s=PATIENCE_S, text=text)


def test_a_handler_keeps_its_state_between_calls(host):
    assert count(host, "the cat and the hat") == {"cat": 1, "and": 1, "hat": 1}
    count(host, "a")
    assert host.call("times", returns=int, timeout_s=PATIENCE_S) == 2


def test_its_errors_are_raised_here_and_end_nothing(host):
    with pytest.raises(DataError, match="there is no text"):
        count(host, "")
    with pytest.raises(WorkerError, match="TypeError"):
        host.call("count", returns=dict[str, int], timeout_s=PATIENCE_S)
    assert host.call("times", returns=int, timeout_s=PATIENCE_S) == 1


def test_an_answer_of_another_type_is_none(host):
    with pytest.raises(HostLostError) as lost:
        host.call("wrong", returns=int, timeout_s=PATIENCE_S)
    assert lost.value.why == "spoilt"
    assert count(host, "again") == {"again": 1}


@pytest.mark.parametrize(
    ("method", "arguments", "why", "how"),
    [
        ("hang", {}, "timeout", "no answer within 0.4 s"),
        ("end", {"code": 3}, "ended", "exit code 3"),
    ],
)
def test_a_loss_is_typed_passes_pickling_and_is_mended_by_the_next_call(
    host, method, arguments, why, how
):
    count(host, "once")
    with pytest.raises(HostLostError) as lost:
        host.call(method, returns=None, timeout_s=0.3, **arguments)
    assert isinstance(lost.value, TransientError)
    received = pickle.loads(pickle.dumps(lost.value))
    assert (received.why, received.how) == (why, how)
    assert ("in hang" in received.stack) == (method == "hang")
    assert not host.is_running()
    count(host, "again")
    assert host.call("times", returns=int, timeout_s=PATIENCE_S) == 1


def test_a_host_that_ended_between_calls_is_lost_to_the_next_one(host):
    """It is not started again in there, without what it was given before."""
    count(host, "once")
    os.kill(host.call("pid", returns=int, timeout_s=PATIENCE_S), signal.SIGKILL)
    while host.is_running():
        time.sleep(0.02)
    with pytest.raises(HostLostError) as lost:
        count(host, "twice")
    assert (lost.value.why, lost.value.how) == ("ended", "SIGKILL")
    count(host, "again")
    assert host.call("times", returns=int, timeout_s=PATIENCE_S) == 1


def test_what_it_started_ends_with_it(host):
    other = host.call("start_another", returns=int, timeout_s=PATIENCE_S)
    assert is_alive(other)
    host.close()
    assert_ends(other)


def test_it_sees_no_secrets_but_those_passed_on(host, monkeypatch):
    names = ["PREFECT_API_KEY", "HF_TOKEN", "WANDB_API_KEY", "PATH"]
    for name in names[:3]:
        monkeypatch.setenv(name, "secret")
    seen = host.call("sees", returns=list[str], timeout_s=PATIENCE_S, names=names)
    assert seen == ["WANDB_API_KEY", "PATH"]


def test_it_outlives_the_thread_that_started_it(host):
    thread = threading.Thread(target=count, args=(host, "once"))
    thread.start()
    thread.join()
    assert host.call("times", returns=int, timeout_s=PATIENCE_S) == 1


def test_a_handler_that_cannot_be_made_says_why():
    host = HostProcess("tests.integration.hosts.counter:Unmakeable", {})
    with pytest.raises(DataError, match="the file is missing"):
        host.start()
    assert not host.is_running()


def test_the_example_of_the_documentation(tmp_path):
    *_, script = write_modules("extending.md", "Code of users in a process of its own", tmp_path)
    finished = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert finished.stdout == "{'cat': 1, 'and': 1, 'hat': 1}\n"


def test_what_is_asked_before_a_start_is_asked_before_each():
    asked = []
    host = HostProcess(COUNTER, {}, before_start=lambda: asked.append(None))
    try:
        for _ in range(2):
            assert count(host, "a") == {"a": 1}
        with pytest.raises(HostLostError):
            host.call("end", returns=None, timeout_s=PATIENCE_S, code=0)
        assert count(host, "a") == {"a": 1}
    finally:
        host.close()
    assert len(asked) == 2


def test_a_host_whose_start_is_refused_does_not_run():
    def refuse():
        raise DataError("it was edited")

    host = HostProcess(COUNTER, {}, before_start=refuse)
    with pytest.raises(DataError, match="it was edited"):
        host.start()
    assert not host.is_running()


def test_a_host_that_cannot_be_started_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    host = HostProcess(COUNTER, {}, python=str(tmp_path / "python"))
    with pytest.raises(WorkerLostError, match="could not be started"):
        host.start()
    assert list(tmp_path.iterdir()) == []
