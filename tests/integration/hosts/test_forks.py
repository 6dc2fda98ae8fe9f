"""mortal_steps.hosts.forked: forks of a host, which are called, lost and ended each by itself."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from mortal_steps.errors import DataError
from mortal_steps.hosts import base
from mortal_steps.hosts.base import HostLostError
from mortal_steps.hosts.process import HostProcess
from tests.support.paths import ROOT
from tests.support.rewards.processes import assert_ends, is_alive

COUNTER = "tests.integration.hosts.counter:WordCounter"
PATIENCE_S = 30.0
MANY = 50


@pytest.fixture(autouse=True)
def found(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(base, "GRACE_S", 0.1)


@pytest.fixture
def host():
    made = HostProcess(COUNTER, {"ignored": ["the"]}, variables={"PYTHONHASHSEED": "0"})
    yield made
    made.close()


def ask(host, method, returns=int, **arguments):
    return host.call(method, returns=returns, timeout_s=PATIENCE_S, **arguments)


def count(host, text):
    return ask(host, "count", dict[str, int], text=text)


def test_a_fork_has_the_state_of_its_host_and_changes_its_own_alone(host):
    count(host, "a")
    first, second = host.fork(), host.fork()
    count(first, "b")
    assert [ask(each, "times") for each in (first, second, host)] == [2, 1, 1]
    assert len({ask(each, "pid") for each in (first, second, host)}) == 3


def test_errors_of_a_fork_are_raised_here_and_end_nothing(host):
    fork = host.fork()
    with pytest.raises(DataError, match="there is no text"):
        count(fork, "")
    assert ask(fork, "times") == 1


@pytest.mark.parametrize(
    ("method", "arguments", "why", "how", "stack"),
    [
        ("hang", {}, "timeout", "no answer within 0.4 s", "in hang"),
        ("end", {"code": 3}, "ended", "exit code 3", ""),
        ("fault", {}, "ended", "SIGSEGV", "in fault"),
        ("wrong", {}, "spoilt", "it is no answer", ""),
    ],
)
def test_a_fork_is_lost_alone_and_says_where_it_was(host, method, arguments, why, how, stack):
    fork, other = host.fork(), host.fork()
    pid = ask(fork, "pid")
    with pytest.raises(HostLostError) as lost:
        fork.call(method, returns=int, timeout_s=0.3, **arguments)
    assert lost.value.why == why
    assert how in lost.value.how
    assert stack in lost.value.stack
    assert not is_alive(pid)
    assert count(other, "a") == count(host, "a") == {"a": 1}
    with pytest.raises(HostLostError) as again:
        ask(fork, "times")
    assert again.value.why == "ended"


def test_a_fork_ends_when_it_is_closed_with_what_it_started(host):
    fork = host.fork()
    pid = ask(fork, "pid")
    others = [ask(fork, "start_another_of_its_group"), ask(fork, "start_another")]
    assert all(map(is_alive, others))
    fork.close()
    assert not is_alive(pid)
    for other in others:
        assert_ends(other)
    fork.close()


def test_what_a_fork_started_ends_when_it_is_killed(host):
    fork = host.fork()
    other = ask(fork, "start_another_of_its_group")
    os.kill(ask(fork, "pid"), signal.SIGKILL)
    with pytest.raises(HostLostError) as lost:
        ask(fork, "times")
    assert lost.value.how == "SIGKILL"
    assert_ends(other)


def test_forks_end_with_their_host_and_a_new_host_forks_again(host):
    fork = host.fork()
    os.kill(ask(host, "pid"), signal.SIGKILL)
    while host.is_running():
        time.sleep(0.02)
    with pytest.raises(HostLostError) as lost:
        ask(fork, "times")
    assert lost.value.how == "its host: SIGKILL"
    assert count(host.fork(), "a") == {"a": 1}


def test_threads_that_fork_while_the_host_is_killed_get_forks_of_the_next_one(host):
    killed = ask(host, "pid")
    os.kill(killed, signal.SIGKILL)  # which is not noticed yet
    with ThreadPoolExecutor(8) as pool:
        forks = list(pool.map(lambda number: host.fork(), range(8)))
    assert [count(fork, "a") for fork in forks] == [{"a": 1}] * 8
    assert ask(host, "pid") != killed


def test_closing_a_host_ends_its_forks(host):
    pids = [ask(host.fork(), "pid") for _ in range(3)]
    host.close()
    assert [is_alive(pid) for pid in pids] == [False] * 3


def test_many_threads_fork_and_call_at_once(host):
    together = threading.Barrier(MANY)

    def count_in_a_fork(number):
        together.wait()
        fork = host.fork()
        try:
            return ask(fork, "pid"), count(fork, f"the {number}"), ask(fork, "times")
        finally:
            fork.close()

    with ThreadPoolExecutor(MANY) as pool:
        found = list(pool.map(count_in_a_fork, range(MANY)))
    assert [counted for _, counted, _ in found] == [{str(number): 1} for number in range(MANY)]
    assert [times for _, _, times in found] == [1] * MANY
    assert len({pid for pid, _, _ in found}) == MANY
    assert not any(is_alive(pid) for pid, _, _ in found)


def test_forks_do_not_wait_for_each_other(host):
    forks = [host.fork() for _ in range(4)]
    started = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda fork: ask(fork, "wait", type(None), seconds=2.0), forks))
    assert time.monotonic() - started < 6.0


def test_a_host_has_the_variables_that_it_is_given(host):
    assert ask(host.fork(), "hashes_of", list[int], texts=["a", "b"]) == ask(
        host, "hashes_of", list[int], texts=["a", "b"]
    )
    other = HostProcess(COUNTER, {}, variables={"PYTHONHASHSEED": "0"})
    try:
        assert ask(other, "hashes_of", list[int], texts=["a"]) == ask(
            host, "hashes_of", list[int], texts=["a"]
        )
    finally:
        other.close()


def test_threads_that_an_import_started_are_told_once(capfd):
    host = HostProcess("tests.integration.hosts.counter:CounterWithThread", {})
    try:
        assert [count(host.fork(), "a") for _ in range(2)] == [{"a": 1}] * 2
    finally:
        host.close()
    assert capfd.readouterr().err.count("background-of-the-user") == 1


OWNER = f"""
from mortal_steps.hosts.process import HostProcess
import time

host = HostProcess({COUNTER!r}, {{}})
forks = [host.fork() for _ in range(3)]
asked = ["pid", "pid", "start_another"]
pids = [fork.call(method, returns=int, timeout_s=30.0) for fork, method in zip(forks, asked)]
print(*pids, flush=True)
forks[1].call("hang", returns=int, timeout_s=600.0)
"""


def test_a_killed_owner_leaves_no_fork_behind():
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    with owner:
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        assert len(pids) == 3
        assert all(map(is_alive, pids))
        owner.kill()
    for pid in pids:
        assert_ends(pid)


WAITING_OWNER = f"""
from mortal_steps.hosts.process import HostProcess

host = HostProcess({COUNTER!r}, {{}})
fork = host.fork()
print(fork.call("pid", returns=int, timeout_s=30.0), flush=True)
fork.call("wait", returns=None, timeout_s=30.0, seconds=0.7)
"""


def test_a_fork_says_nothing_of_an_owner_that_was_killed_before_it_read_the_answer():
    command = [sys.executable, "-c", WAITING_OWNER]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with owner:
        pid = int(owner.stdout.readline())
        time.sleep(0.2)  # it has asked
        os.kill(owner.pid, signal.SIGSTOP)
        time.sleep(1.0)  # it is answered
        owner.kill()
        assert_ends(pid)
        assert "Traceback" not in owner.stderr.read() + owner.stdout.read()
