"""mortal_steps.hosts.remote: hosts behind a relay, which is a process of its own here."""

import http.server
import os
import pickle
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from mortal_steps.errors import DataError, WorkerError
from mortal_steps.hosts.base import HostLostError
from mortal_steps.hosts.connections import Connections
from mortal_steps.hosts.relay import BOOT, LOST, OPENED, TOLD, Begin
from mortal_steps.hosts.remote import RemoteHost, archive
from mortal_steps.system.frames import HEADER
from tests.support.paths import ROOT
from tests.support.rewards.processes import assert_ends, is_alive

COUNTER = "tests.integration.hosts.counter:WordCounter"
PATIENCE_S = 30.0
SOON_GONE = "from mortal_steps.hosts import relay; relay.GONE_S, relay.ALIVE_EVERY_S = 2.0, 0.1\n"


class ProcessLink:
    """The relay as a process of this machine."""

    def __init__(self, receive, ended, boot=BOOT):
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", boot], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.sending = threading.Lock()

        def read():
            while content := self.process.stdout.read1():
                receive(content)
            ended("the machine ended")

        threading.Thread(target=read, daemon=True).start()

    def send(self, content):
        with self.sending:
            try:
                self.process.stdin.write(content)
                self.process.stdin.flush()
            except (BrokenPipeError, ValueError):
                pass

    def close(self):
        self.process.kill()
        self.process.wait()


class MadeUpLink:
    """A relay that answers with `told`, of which the first message is no order."""

    def __init__(self, told):
        self.told, self.orders, self.is_begun = told, [], False

    def __call__(self, receive, ended):
        self.receive = receive
        return self

    def send(self, content):
        if self.is_begun:
            self.orders.append(pickle.loads(content))
            self.told(self, self.orders[-1])
        self.is_begun = True

    def close(self):
        pass


BEGIN = Begin(handler=COUNTER, options={}, passed_on=(), variables={}, start_timeout_s=PATIENCE_S)


@pytest.fixture
def links():
    return []


@pytest.fixture
def make(links):
    made = []

    def connect(*given):
        links.append(ProcessLink(*given))
        return links[-1]

    def host(**given):
        begin = Begin(
            handler=COUNTER,
            options={"ignored": ["the"]},
            passed_on=(),
            variables={"PYTHONHASHSEED": "0"},
            start_timeout_s=PATIENCE_S,
            **given,
        )
        names = (
            "__init__.py",
            *(f"integration/{each}.py" for each in ("__init__", "hosts/__init__")),
        )
        files = {
            f"tests/{name}": ROOT / "tests" / name
            for name in (*names, "integration/hosts/counter.py")
        }
        made.append(RemoteHost(connect, begin, files))
        return made[-1]

    yield host
    for each in made:
        each.close()


@pytest.fixture
def host(make):
    return make()


def ask(host, method, returns=int, **arguments):
    return host.call(method, returns=returns, timeout_s=PATIENCE_S, **arguments)


def count(host, text):
    return ask(host, "count", dict[str, int], text=text)


def test_a_fork_there_has_the_state_of_its_host_and_changes_its_own_alone(host):
    count(host, "a")
    first, second = host.fork(), host.fork()
    assert count(first, "the ä") == {"ä": 1}
    assert [ask(each, "times") for each in (first, second, host)] == [2, 1, 1]
    assert len({ask(each, "pid") for each in (first, second, host)}) == 3


def test_errors_there_are_raised_here_and_end_nothing(host):
    fork = host.fork()
    with pytest.raises(DataError, match="there is no text"):
        count(fork, "")
    assert ask(fork, "times") == 1


@pytest.mark.parametrize(
    ("method", "arguments", "why", "how", "stack"),
    [
        ("hang", {}, "timeout", "no answer within 0.8 s", "in hang"),
        ("end", {"code": 3}, "ended", "exit code 3", ""),
        ("fault", {}, "ended", "SIGSEGV", "in fault"),
        ("wrong", {}, "spoilt", "it is no answer", ""),
    ],
)
def test_a_fork_there_is_lost_alone_and_says_where_it_was(host, method, arguments, why, how, stack):
    fork, other = host.fork(), host.fork()
    pid = ask(fork, "pid")
    with pytest.raises(HostLostError) as lost:
        fork.call(method, returns=int, timeout_s=0.3, **arguments)
    assert (lost.value.why, how in lost.value.how) == (why, True)
    assert stack in lost.value.stack
    assert_ends(pid)
    assert count(other, "a") == count(host, "a") == {"a": 1}
    with pytest.raises(HostLostError, match="it had ended before the call"):
        count(fork, "a")


def test_a_fork_there_that_is_ended_twice_at_once_takes_no_other_along(host, links):
    fork, other = host.fork(), host.fork()
    fork.kill()
    fork._is_ended = False  # as another thread has seen it
    fork.kill()
    assert count(other, "a") == {"a": 1}
    assert len(links) == 1


def test_forks_work_at_the_same_time_and_a_killed_one_ends_in_the_middle(host):
    forks = [host.fork() for _ in range(20)]
    began = time.monotonic()
    with ThreadPoolExecutor(20) as threads:
        waiting = [threads.submit(ask, each, "wait", None, seconds=1.0) for each in forks]
        time.sleep(0.2)
        forks[0].kill()
        with pytest.raises(HostLostError, match="SIGKILL"):
            waiting[0].result()
        assert [each.result() for each in waiting[1:]] == [None] * 19
    assert time.monotonic() - began < 10


def test_what_is_announced_goes_on_there_while_nobody_asks_for_it(host):
    fork = host.fork()
    text = {"text": "a"}
    fork.announce([("count", PATIENCE_S, text), ("end", PATIENCE_S, {"code": 3})])
    fork.announce([("count", PATIENCE_S, text)])
    pid = ask(host, "pid")
    time.sleep(1)
    assert count(fork, "a") == {"a": 1}
    with pytest.raises(HostLostError, match="exit code 3"):
        ask(fork, "end", code=3)
    with pytest.raises(HostLostError, match="ended"):
        count(fork, "a")
    assert is_alive(pid)


def test_a_machine_that_is_lost_is_replaced_and_all_its_forks_are_lost(host, links):
    fork, other = host.fork(), host.fork()
    pids = [ask(each, "pid") for each in (host, fork, other)]
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(ask, fork, "wait", None, seconds=30.0)
        time.sleep(0.2)
        links[0].process.kill()
        with pytest.raises(HostLostError, match="the machine ended"):
            waiting.result()
    with pytest.raises(HostLostError, match="the machine ended"):
        count(other, "a")
    for pid in pids:
        assert_ends(pid)
    assert count(host.fork(), "a") == {"a": 1}
    assert len(links) == 2


def test_everything_there_ends_when_nobody_speaks_to_it(host, links):
    pids = [ask(each, "pid") for each in (host, host.fork())]
    links[0].process.stdin.close()
    for pid in pids:
        assert_ends(pid)
    assert links[0].process.wait() == 0


def test_code_there_reaches_what_listens_here_by_another_port(host):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            said = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *given):
            pass

    fork = host.fork()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        port = server.server_address[1]
        there = fork.reach(port)
        assert there != port
        assert there == host.fork().reach(port)
        for letters in (1, 5_000_000):
            text = "x" * letters
            assert ask(fork, "posted", str, url=f"http://127.0.0.1:{there}", text=text) == text
        server.shutdown()
    with pytest.raises(WorkerError, match=r"URLError|RemoteDisconnected|ConnectionReset"):
        ask(fork, "posted", str, url=f"http://127.0.0.1:{there}", text="x")


def test_a_program_beside_it_runs_with_it_and_takes_it_along(make, links):
    host = make(server=("sleep", "600"))
    assert count(host, "a") == {"a": 1}
    other = make(server=("false",))
    with pytest.raises(HostLostError, match="the machine ended"):
        other.start()
        links[-1].process.wait(PATIENCE_S)
        count(other, "a")
    assert not is_alive(links[-1].process.pid)


def test_a_program_beside_it_sees_no_credentials_but_those_that_are_named(make, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("KEY", "of a service")
    host = make(server=("sh", "-c", '[ -z "$HF_TOKEN" ] && [ -n "$KEY" ] && exec sleep 600'))
    host.start()
    time.sleep(1)
    assert count(host, "a") == {"a": 1}


def test_a_relay_that_is_busy_stays_and_ends_once_nobody_speaks_to_it():
    boot = BOOT.replace("main(folder)", SOON_GONE + "main(folder)")
    link = ProcessLink(lambda content: None, lambda how: None, boot)
    try:
        archived = archive({})
        link.send(HEADER.pack(len(archived)) + archived + pickle.dumps(BEGIN))
        for _ in range(60):
            link.send(pickle.dumps(("received", 0, b"")))
            time.sleep(0.1)
        assert link.process.poll() is None
        assert link.process.wait(PATIENCE_S) == 1
    finally:
        link.close()


def test_code_there_reaches_no_port_that_it_was_not_given():
    def open_it(link, order):
        if order[0] == "ask":
            port = str(listening.getsockname()[1]).encode()
            link.receive(TOLD.pack(OPENED, 5, len(port)) + port)
            link.receive(TOLD.pack(LOST, order[1].number, 2) + b"[]")

    link = MadeUpLink(open_it)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        with pytest.raises(HostLostError):
            RemoteHost(link, BEGIN, {}).start()
        assert ("received", 5, b"") in link.orders
        listening.settimeout(0.5)
        with pytest.raises(TimeoutError):
            listening.accept()


@pytest.mark.parametrize("content", [b"?", b"7", b"[]", b'["hungry", "", ""]', b'["ended", 1, ""]'])
def test_a_loss_that_is_told_wrongly_is_a_loss(content):
    def lose(link, order):
        link.receive(TOLD.pack(LOST, order[1].number, len(content)) + content)

    with pytest.raises(HostLostError, match="does not say how"):
        RemoteHost(MadeUpLink(lose), BEGIN, {}).start()


def test_files_older_than_what_archives_can_hold_are_sent(tmp_path):
    (tmp_path / "old.py").touch()
    os.utime(tmp_path / "old.py", (0, 0))
    assert archive({"old.py": tmp_path / "old.py"})


def test_a_connection_that_ends_as_soon_as_it_is_announced_ends():
    connections = Connections(lambda number, content: None)
    ours, theirs = socket.socketpair()
    with theirs:
        connections.add(1, ours, lambda: connections.received(1, b""))
        theirs.settimeout(PATIENCE_S)
        assert theirs.recv(1) == b""
