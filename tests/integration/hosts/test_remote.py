"""mortal_steps.hosts.remote: hosts behind a relay, which is a process of its own here."""

import http.server
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from mortal_steps.errors import DataError, WorkerError
from mortal_steps.hosts.base import HostLostError
from mortal_steps.hosts.relay import BOOT, Begin
from mortal_steps.hosts.remote import RemoteHost
from tests.support.paths import ROOT
from tests.support.rewards.processes import assert_ends, is_alive

COUNTER = "tests.integration.hosts.counter:WordCounter"
PATIENCE_S = 30.0


class ProcessLink:
    """The relay as a process of this machine."""

    def __init__(self, receive, ended):
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", BOOT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
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
        threading.Thread(target=server.serve_forever, daemon=True).start()
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
        time.sleep(1)
        count(other, "a")
    assert not is_alive(links[-1].process.pid)
