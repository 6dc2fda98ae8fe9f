"""mortal_steps.sandbox: lanes side by side, what a program is told, and lanes that are lost."""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mortal_steps.errors import NoIsolationError, SandboxError
from mortal_steps.sandbox import lane as lane_module
from mortal_steps.sandbox import levels, pool
from mortal_steps.sandbox.base import Limits, Program
from mortal_steps.sandbox.box import INSIDE, own_interpreter
from mortal_steps.sandbox.executors import local_pool
from mortal_steps.sandbox.inside import wire
from mortal_steps.sandbox.inside.remote import BOOT
from mortal_steps.sandbox.lane import Lane, LaneLost, request_of
from mortal_steps.sandbox.levels import Level, probe_of, reached_level, way_to_run, why_not
from mortal_steps.sandbox.pool import Pool, Row
from tests.support.rewards.processes import assert_ends

PARENT = """
import os, time
from mortal_steps.sandbox.base import Program
from mortal_steps.sandbox.levels import way_to_run
from mortal_steps.sandbox.executors import local_pool
import threading
pool = local_pool(way_to_run(allow_unisolated=False), 1)
program = Program(code="import time; print('x', flush=True); time.sleep(99)")
threading.Thread(target=pool.run, args=([program],), daemon=True).start()
while pool.lanes() == []:
    time.sleep(0.01)
print(*(lane.pid for lane in pool.lanes()), flush=True)
time.sleep(99)
"""


@pytest.fixture(scope="module")
def lanes() -> Iterator[Pool[Lane]]:
    made = local_pool(way_to_run(allow_unisolated=False), 2)
    yield made
    made.close()


def test_a_program_is_one_of_its_own(lanes: Pool[Lane]) -> None:
    told, raised, asked, ended, left, quits, last = lanes.run(
        [
            Program(code="import sys; print('out'); print('err', file=sys.stderr)"),
            Program(code="def f():\n    raise KeyError('x')\n\nf()"),
            Program(code="print(int(input()) + int(input()), __name__)", stdin="20\n22\n"),
            Program(code="import sys; sys.exit(3)"),
            Program(code="print('YES'); exit()\nprint('NO')"),
            Program(code="assert callable(help) and license; quit(4)"),
            Program(code="import atexit; atexit.register(print, 'at exit'); print('é\\udc80')"),
        ]
    )
    assert (told.success, told.exit_code, told.stdout, told.stderr) == (True, 0, "out\n", "err\n")
    assert (raised.success, raised.exit_code) == (False, 1)
    assert 'File "program.py", line 2, in f\n    raise KeyError' in raised.stderr
    assert "inside" not in raised.stderr
    assert asked.stdout == "42 __main__\n"
    assert (ended.success, ended.exit_code) == (False, 3)
    assert (left.success, left.stdout, quits.exit_code) == (True, "YES\n", 4)
    assert last.stdout.splitlines()[1] == "at exit"
    assert 0 < told.cpu_s < told.duration + 0.1


ENDINGS = {
    "closed": "import sys; print(1); sys.stdout.close()",
    "none": "import sys; print(1); sys.stdout = None",
    "real": "import sys, io; sys.stdout = io.StringIO(); print(2, file=sys.__stdout__)",
    "kept": "import sys, io; out = sys.stdout; sys.stdout = io.StringIO(); out.write('3')",
    "open": "def say(text):\n    say.to = open(1, 'w')\n    say.to.write(text)\nsay('4')",
    "deleted": "class Said:\n    def __del__(self): print(5)\nsaid = Said()",
    "cycle": "class Said:\n    def __del__(self): print(6)\nsaid = Said(); said.it = said",
    "big": "import sys; sys.exit(10**20)",
    "code": "import sys; sys.exit(-1)",
    "late": "import atexit, threading\natexit.register(print, 8)\n"
    "threading.Timer(0.1, print, [7]).start()",
}


def test_a_program_ends_as_an_interpreter_would_end_it(lanes: Pool[Lane]) -> None:
    results = lanes.run([Program(code=code) for code in ENDINGS.values()])
    for (name, code), found in zip(ENDINGS.items(), results, strict=True):
        alone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        ending = (alone.returncode, alone.stdout, alone.stderr)
        assert (found.exit_code, found.stdout, found.stderr) == ending, name


def test_programs_know_nothing_of_each_other_or_of_their_lane(lanes: Pool[Lane]) -> None:
    said = "import os, random; print(random.random(), hash('x'), os.listdir('.'))"
    marks = "import builtins, math; builtins.x = math.pi = 3; open('x', 'w').write('x')"
    asks = f"import math; assert math.pi > 3.1\nassert 'x' not in dir(__builtins__)\n{said}"
    results = lanes.run([Program(code=code) for code in (marks, asks) * 6])
    assert all(result.success for result in results)
    assert len({result.stdout for result in results[1::2]}) == 1


def test_results_come_in_order_and_a_slow_one_holds_nobody(lanes: Pool[Lane]) -> None:
    slow = Program(code="import time; time.sleep(99)", limits=Limits(wall_timeout=1.5))
    quick = [Program(code=f"print({number})") for number in range(20)]
    began = time.monotonic()
    first, *others = lanes.run([slow, *quick])
    assert first.limit == "wall_s" and first.timed_out
    assert [int(result.stdout) for result in others] == list(range(20))
    assert first.duration < time.monotonic() - began


def test_a_row_ends_where_it_is_not_to_go_on(lanes: Pool[Lane]) -> None:
    programs = [Program(code=f"import sys; sys.exit({code})") for code in (0, 0, 7, 0)]
    results = lanes.run_rows([Row(programs=programs, go_on=lambda so_far: so_far[-1].success)])
    assert [each.exit_code for each in results[0]] == [0, 0, 7]


def test_a_lane_that_is_killed_is_replaced_and_the_program_runs_again(lanes: Pool[Lane]) -> None:
    before = [lane.pid for lane in lanes.lanes()]
    waiting = Program(code="import time; time.sleep(2); print('done')")  # longer than the timer
    killer = threading.Timer(0.2, lambda: [os.kill(pid, signal.SIGKILL) for pid in before])
    killer.start()
    assert [result.stdout for result in lanes.run([waiting, waiting])] == ["done\n", "done\n"]
    assert not set(before) & {lane.pid for lane in lanes.lanes()}
    for pid in before:
        assert_ends(pid)


def test_a_program_that_is_killed_from_outside_runs_again(lanes: Pool[Lane]) -> None:
    waiting = Program(code="import time; time.sleep(3); print('done')")  # until it is found
    killed: list[int] = []

    def kill_programs() -> None:
        while len(lanes.lanes()) < 2:
            time.sleep(0.01)
        for lane in lanes.lanes():
            _, program = _descendants(lane.pid)
            os.kill(program, signal.SIGKILL)
            killed.append(program)

    killer = threading.Thread(target=kill_programs)
    killer.start()
    assert [result.stdout for result in lanes.run([waiting, waiting])] == ["done\n", "done\n"]
    killer.join()
    assert len(killed) == 2


def test_a_lane_that_never_starts_is_an_error_and_no_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool, "DELAY_S", 0.01)
    broken = local_pool("root" if os.geteuid() else "user", 1)
    if not os.geteuid():  # as root both ways work: take away what it starts
        monkeypatch.setattr("mortal_steps.sandbox.lane.command", lambda *_: ["/bin/false"])
    with pytest.raises(SandboxError, match="lost 3 times"):
        broken.run([Program(code="print(1)")])
    broken.close()


@pytest.mark.parametrize("gone", ["bubblewrap", "the temporary folder", "descriptors"])
def test_a_lane_that_cannot_be_started_is_an_error_of_the_sandbox(
    monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    monkeypatch.setattr(pool, "DELAY_S", 0.01)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if gone == "bubblewrap":
        monkeypatch.setattr("mortal_steps.sandbox.box.find_bubblewrap", lambda: None)
    elif gone == "descriptors":
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    else:
        monkeypatch.setattr(tempfile, "tempdir", "/not/there")
    broken = local_pool("root" if os.geteuid() == 0 else "user", 1)
    try:
        with pytest.raises(SandboxError, match="could not be started"):
            broken.run([Program(code="print(1)")])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        broken.close()


def test_an_error_leaves_no_program_in_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "DELAY_S", 0.01)
    started: list[int] = []

    def start() -> Lane:
        started.append(1)
        raise LaneLost("no lane")

    broken: Pool[Lane] = Pool(start, 1)
    with pytest.raises(SandboxError, match="no lane"):
        broken.run([Program(code="print(1)")] * 50)
    broken.close()
    assert len(started) <= 5 * pool.ATTEMPTS, "of the first, and of some that had begun by then"


def test_a_lane_that_gives_no_answer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    grace_s, lost = lane_module.GRACE_S, Lane._lost

    def then_patient(self: Lane, how: str) -> LaneLost:
        monkeypatch.setattr(lane_module, "GRACE_S", grace_s)
        return lost(self, how)

    monkeypatch.setattr(Lane, "_lost", then_patient)
    monkeypatch.setattr(lane_module, "GRACE_S", 0.1)
    monkeypatch.setattr(lane_module, "CLOSE_S", 0.1)
    own = local_pool(way_to_run(allow_unisolated=False), 1)
    own.run([Program(code="")])
    (box,) = [lane.pid for lane in own.lanes()]
    (server,) = [int(child) for child, parent in _parents() if parent == box]
    os.kill(server, signal.SIGSTOP)
    limits = Limits(timeout=0.5, wall_timeout=1.5)
    (result,) = own.run([Program(code="print('done')", limits=limits)])
    assert result.stdout == "done\n"
    assert [lane.pid for lane in own.lanes()] != [box]
    own.close()
    assert_ends(server)


def test_the_time_for_which_a_box_stands_still_is_not_the_programs() -> None:
    sleeps = Program(
        code="import time; time.sleep(1.0); print('done')", limits=Limits(wall_timeout=2.5)
    )
    own = local_pool(way_to_run(allow_unisolated=False), 1)
    own.run([Program(code="")])
    (box,) = [lane.pid for lane in own.lanes()]

    def stand_still() -> None:
        stopped = _descendants(box)
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in stopped:
                os.kill(pid, number)
            time.sleep(3.0)

    still = threading.Thread(target=stand_still)
    still.start()
    (result,) = own.run([sleeps])
    still.join()
    own.close()
    assert (result.stdout, result.limit) == ("done\n", None)
    assert result.duration > 3.0


def test_the_time_for_which_a_program_waits_for_a_core_is_not_the_programs() -> None:
    """Four on one core: each could have 0.2 of 0.5 seconds, and gets a fourth of them."""
    code = "import time\nwhile time.process_time() < 0.2: pass\nprint('done')"
    works = Program(code=code, limits=Limits(timeout=1.0, wall_timeout=0.5))
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        own = local_pool(way_to_run(allow_unisolated=False), 4)
        own.run([Program(code="import time; time.sleep(0.2)")] * 4)
        results = own.run([works] * 4)
        own.close()
    finally:
        os.sched_setaffinity(0, before)
    assert [(result.stdout, result.limit) for result in results] == [("done\n", None)] * 4
    assert max(result.duration for result in results) > 0.6
    assert all(0.1 < result.wall_s < result.duration for result in results)


def test_nothing_is_left_of_a_pool_whose_process_is_killed() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    )
    assert parent.stdout is not None
    with parent:
        lane = int(parent.stdout.readline())
        inside = _descendants(lane)
        assert inside
        parent.kill()
    for pid in (lane, *inside):
        assert_ends(pid)


def _descendants(pid: int) -> list[int]:
    """Processes below one, once there are a server and a program."""
    for _ in range(500):
        below = [pid]
        for one in below:
            below += [int(child) for child, parent in _parents() if parent == one]
        if len(below) > 2:
            return below[1:]
        time.sleep(0.02)
    raise AssertionError("no program began")


def _parents() -> Iterator[tuple[str, int]]:
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            yield name, int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])


def test_without_isolation_programs_are_refused_unless_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing = Level(way="bare", reason="there is no bubblewrap")
    monkeypatch.setattr(levels, "reached_level", lambda: nothing)
    with pytest.raises(NoIsolationError, match=r"rewards\.sandbox\.allow_unisolated = true"):
        way_to_run(allow_unisolated=False)
    assert way_to_run(allow_unisolated=True) == "bare"


def test_programs_find_what_is_installed_in_tmp_which_is_empty_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        packages = Path(folder, "site-packages")
        packages.mkdir()
        (packages / "installed_in_tmp.py").write_text("HERE = __file__")
        monkeypatch.syspath_prepend(packages)
        own = local_pool(way_to_run(allow_unisolated=False), 1)
        code = "import os, installed_in_tmp\nprint(os.listdir('/tmp'), installed_in_tmp.HERE)"
        (told,) = own.run([Program(code=code)])
        own.close()
    assert told.stdout == f"[] /installed{packages}/installed_in_tmp.py\n", told.stderr


def test_a_box_may_show_a_folder_of_the_user_in_which_packages_are_but_no_other() -> None:
    """As where Python is installed in a home directory."""
    way, own = way_to_run(allow_unisolated=False), own_interpreter()
    own = replace(own, packages=(*own.packages, "/var/tmp"))
    assert why_not(way, own) is None
    lane = Lane(way, replace(own, packages=(*own.packages, "/var/lib")))
    told = lane.run(probe_of(own))
    lane.close()
    assert "a box that shows ['lib'] in /var" in told.stderr, "the probe must see what is shown"


def test_a_bare_pool_keeps_to_limits_and_ends_what_programs_leave() -> None:
    bare = local_pool("bare", 1)
    leaves = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(99)"
    spins = Program(code="while True: pass", limits=Limits(timeout=0.2))
    left, spun, outside = bare.run([Program(code=leaves), spins, probe_of(own_interpreter())])
    bare.close()
    assert left.success and left.duration < 50
    assert spun.limit == "cpu_s"
    assert not outside.success, "the probe must tell a box from none"


def test_a_probe_that_failed_is_tried_again_and_going_without_a_box_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = iter(("bare", "bare", "user"))
    monkeypatch.setattr(
        levels, "reached_level", lambda: Level(way=next(found), reason="it was full")
    )
    with pytest.raises(NoIsolationError, match="it was full"):
        way_to_run(allow_unisolated=False)
    assert way_to_run(allow_unisolated=True) == "bare"
    (record,) = caplog.records
    assert "it was full; because of allow_unisolated" in record.message
    assert way_to_run(allow_unisolated=True) == "user"


def test_a_program_in_a_container_cannot_read_what_the_container_was_given() -> None:
    code = "print(open('/proc/self/environ').read())"
    start = {"enclosure": "bare", "uid": None, "filter": "", "packages": []}
    modules = {each.name: each.read_text(encoding="utf-8") for each in INSIDE.glob("*.py")}
    environment = {"MODAL_IDENTITY_TOKEN": "secret", "SAMPLE": "seen"}
    command = [sys.executable, "-s", "-c", BOOT, "60"]
    ours, theirs = socket.socketpair()
    with ours, subprocess.Popen(command, stdin=theirs, stdout=theirs, env=environment) as server:
        theirs.close()
        for message in (wire.encode({"files": modules}), wire.encode(start)):
            ours.sendall(message)
        assert "ready" in wire.receive(ours, 1024)
        ours.sendall(request_of(Program(code=code)))
        said = wire.receive(ours, 65536)[wire.TEXTS]
        ours.shutdown(socket.SHUT_WR)
    assert (server.returncode, said[1]) == (0, b"")
    assert b"SAMPLE=seen" in said[0] and b"secret" not in said[0], said


def test_the_level_is_found_by_trying() -> None:
    level = reached_level()
    assert level.way in ("root", "user"), level.summary
    assert "run isolated" in level.summary
