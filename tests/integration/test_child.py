"""mortal_steps.system.child: a child ends with its owner, and its descendants with it."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from mortal_steps.system.asked import AskedProcess
from mortal_steps.system.child import Child
from mortal_steps.system.processes import ProcessId
from tests.support.paths import ROOT

FAMILY = (
    "import os, subprocess, sys, time\n"
    "escaped = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'],"
    " start_new_session=True)\n"
    "print(os.getpid(), escaped.pid, flush=True)\n"
)
WAITS = FAMILY + "time.sleep(600)\n"


def family(output):
    """The child and the grandchild that has left its process group."""
    return [ProcessId.of(int(pid)) for pid in output.readline().split()]


def all_gone(processes):
    deadline = time.monotonic() + 60
    while any(process.lives() for process in processes):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return True


def test_descendants_end_with_a_child_that_ends_by_itself():
    with Child([sys.executable, "-c", FAMILY], output=subprocess.PIPE) as child:
        members = family(child.stdout)
        assert child.wait(30) == 0
    assert all_gone(members)


def test_a_child_and_its_descendants_are_killed():
    with Child([sys.executable, "-c", WAITS], output=subprocess.PIPE) as child:
        members = family(child.stdout)
        assert all(process.lives() for process in members)
        child.kill_all()
        assert child.returncode == -signal.SIGKILL
    assert all_gone(members)


def test_a_thread_may_kill_it_while_another_waits_and_closes_its_lifeline():
    """Another descriptor may have that number by then."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def kill_until_gone(child):
        while child.returncode is None:
            child.kill()
        child.kill()

    try:
        with ThreadPoolExecutor(4) as threads:
            for _ in range(20):
                child = Child(["true"])
                killing = [threads.submit(kill_until_gone, child) for _ in range(3)]
                child.wait(30)
                for each in killing:
                    each.result()
    finally:
        sys.setswitchinterval(interval)


def test_they_end_with_an_owner_that_is_killed():
    script = f"""
        import subprocess, sys, threading, time
        from mortal_steps.system.child import Child

        def begin():
            child = Child([sys.executable, "-c", {WAITS!r}], output=subprocess.PIPE)
            print(child.stdout.readline().decode(), end="", flush=True)
            children.append(child)

        children = []
        thread = threading.Thread(target=begin)
        thread.start()
        thread.join()
        time.sleep(600)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=ROOT, stdout=subprocess.PIPE
    ) as owner:
        members = family(owner.stdout)
        time.sleep(0.2)
        assert all(process.lives() for process in members), "the thread's end is not the owner's"
        owner.kill()
        assert all_gone(members)


def test_a_child_outlives_the_thread_that_began_it():
    children = []
    command = [sys.executable, "-c", WAITS]
    thread = threading.Thread(
        target=lambda: children.append(Child(command, output=subprocess.PIPE))
    )
    thread.start()
    thread.join()
    with children[0] as child:
        members = family(child.stdout)
        time.sleep(0.2)
        assert all(process.lives() for process in members)
        child.kill_all()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("raise SystemExit(3)", 3),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
        ("import os; os.abort()", -signal.SIGABRT),
    ],
)
def test_the_exit_code_is_the_childs(code, expected):
    with Child([sys.executable, "-c", code]) as child:
        assert child.wait(30) == expected


def test_a_signal_to_end_reaches_the_child():
    handles = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print(flush=True)\ntime.sleep(600)"
    )
    with Child([sys.executable, "-c", handles], output=subprocess.PIPE) as child:
        child.stdout.readline()
        child.terminate()
        assert child.wait(30) == 7


def test_a_connection_ends_with_the_child():
    reads, writes = os.pipe()
    with Child([sys.executable, "-c", "pass"], pass_fds=[writes]) as child, open(reads) as end:
        os.close(writes)
        assert end.read() == ""
        child.wait(30)


def test_a_program_that_does_not_exist_is_an_error_of_the_start():
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        Child(["/no-such-program"])


def test_a_grace_lets_a_child_end_after_its_owner_and_no_longer(tmp_path):
    waits = "import sys, time; sys.stdin.read(); open({}, 'w').close(); time.sleep(600)"
    saved = tmp_path / "saved"
    script = f"""
        import subprocess, sys
        from mortal_steps.system.child import Child

        code = {waits.format(repr(str(saved)))!r}
        child = Child(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, grace_s=2.0, scratch=sys.argv[1]
        )
        print(child.pid, flush=True)
        child.wait()
    """
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(scratch)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    ) as owner:
        supervisor = ProcessId.of(int(owner.stdout.readline()))
        owner.kill()
    deadline = time.monotonic() + 60
    while not saved.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert all_gone([supervisor])
    assert not scratch.exists()


def test_an_answer_that_a_kill_cut_short_is_none(tmp_path):
    (tmp_path / "cut_short.py").write_text(
        "import os, pickle, signal, sys\n"
        "os.write(int(sys.argv[1]), pickle.dumps('an answer of some length')[:-9])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with AskedProcess("cut_short", env=environment) as process:
        assert process.wait(60) == -signal.SIGKILL
    assert process.answer() is None
