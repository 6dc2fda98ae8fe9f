"""Programs in Modal Sandboxes, by Modal's own client and a control plane on this machine."""

import os
import threading
from dataclasses import replace

import modal
import pytest

from mortal_steps.errors import ComputeError, SandboxError
from mortal_steps.places.modal import sandboxes
from mortal_steps.places.modal.sandboxes import ModalExecutor
from mortal_steps.sandbox.base import Limits, Program
from mortal_steps.sandbox.executors import ExecutorSettings, Needs
from mortal_steps.sandbox.pool import Row
from tests.modal_plane.plane import ModalPlane
from tests.support.sandbox.hostile import BEFORE, SCAN

NEEDS = Needs(who="a test")
TIGHT = Limits(timeout=0.5, wall_timeout=2.0, memory_mb=256, processes=16, output_kb=16)


BOTH = [Program(code="import time; time.sleep(0.5)")] * 2
"""Keeps two lanes busy."""


def started(plane: ModalPlane) -> int:
    return len(plane.events("sandbox_started"))


def test_many_programs_share_a_few_sandboxes(place: ModalExecutor, modal_plane: ModalPlane) -> None:
    before = started(modal_plane)
    pool = place.pool(NEEDS)
    codes = ["print(input())", "import sys; sys.exit(3)", "def f():\n    1/0\nf()", "x ="] * 5
    results = pool.run([Program(code=code, stdin="é\n") for code in codes])
    told, ended, raised, unparsed = results[:4]
    assert (told.success, told.stdout, told.exit_code, told.limit) == (True, "é\n", 0, None)
    assert (ended.success, ended.exit_code) == (False, 3)
    assert 'File "program.py", line 2, in f' in raised.stderr and "inside" not in raised.stderr
    assert "SyntaxError" in unparsed.stderr
    assert [result.exit_code for result in results] == [0, 3, 1, 1] * 5
    assert started(modal_plane) - before == 2
    assert pool is place.pool(Needs(who="somebody else"))
    assert "MODAL_TOKEN_ID" not in os.environ


HOSTILE = {
    "cpu_s": "while True: pass",
    "wall_s": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "output_kb": "while True: print('x' * 999)",
    "processes": "import os, time\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "memory_mb": "import os, time\nfor _ in range(3): os.fork()\nx = b'1' * 10**8\ntime.sleep(9)",
    "": "import os, signal\nopen('/tmp/left', 'w').write('x')\nos.makedirs('/tmp/a/b')\n"
    "if os.fork() == 0:\n    os.setsid()\n    import time\n    time.sleep(99)\n"
    "try: os.kill(os.getppid(), signal.SIGKILL)\nexcept PermissionError: print('not mine')\n"
    "try: open('/usr/x', 'w')\nexcept OSError: print('read-only')\n"
    "try: os.listdir(f'/proc/{os.getppid()}/fd')\nexcept OSError: print('hidden')\n"
    "import socket\ntry: socket.create_connection(('1.1.1.1', 53), 1)\n"
    "except OSError: print('alone', sorted(n for n in os.environ if 'MODAL' in n))\n",
}
AFTER = "import os; print([n for n in os.listdir('/tmp') if os.stat(n).st_uid == os.getuid()])"


def test_what_means_harm_harms_nobody(place: ModalExecutor) -> None:
    patient = replace(TIGHT, wall_timeout=30.0)  # on a busy machine the other limits come late
    rows = [
        Row(programs=[Program(code=code, limits=limits), Program(code=AFTER)])
        for limit, code in HOSTILE.items()
        for limits in [TIGHT if limit == "wall_s" else patient]
    ]
    place.pool(NEEDS).run(BOTH)
    before = {lane.sandbox_id for lane in place.pool(NEEDS).lanes()}
    ends = place.pool(NEEDS).run_rows(rows)
    for limit, (result, after) in zip(HOSTILE, ends, strict=True):
        allowed = {"processes", "cpu_s", "wall_s"} if limit == "processes" else {limit or None}
        assert result.limit in allowed, (limit, result)
        assert after.stdout == "[]\n", (limit, after)
    said = ends[-1][0].stdout
    assert said.splitlines() == ["not mine", "read-only", "hidden", "alone []"], ends[-1][0]
    assert {lane.sandbox_id for lane in place.pool(NEEDS).lanes()} == before


def test_a_program_cannot_read_what_ran_before(place: ModalExecutor) -> None:
    ran, scan = place.pool(NEEDS).run_rows([Row(programs=[BEFORE, Program(code=SCAN)])])[0]
    assert ran.stdout == "8731-stdout 8731-stdin\n"
    assert (scan.success, scan.stdout) == (True, ""), scan


def test_a_sandbox_that_ends_is_replaced_and_the_program_runs_again(place: ModalExecutor) -> None:
    pool = place.pool(NEEDS)
    pool.run(BOTH)
    first = {lane.sandbox_id for lane in pool.lanes()}
    lanes = pool.lanes()
    ending = threading.Timer(0.3, lambda: [lane.close() for lane in lanes])
    ending.start()
    slow = Program(code="import time; time.sleep(1); print('done')")
    assert [result.stdout for result in pool.run([slow, slow])] == ["done\n", "done\n"]
    assert not first & {lane.sandbox_id for lane in pool.lanes()}


def test_what_the_next_program_would_find_wears_a_sandbox_out(
    place: ModalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = place.pool(NEEDS)
    deep = "import os\nfor _ in range(1500):\n    os.mkdir('d'); os.chdir('d')"
    results = pool.run_rows([Row(programs=[Program(code=deep), Program(code=AFTER)])])
    assert [(each.success, each.stdout) for each in results[0]] == [(True, ""), (True, "[]\n")]
    before = {lane.sandbox_id for lane in pool.lanes()}
    monkeypatch.setattr(sandboxes, "MARGIN_S", sandboxes.IDLE_S + 1.0)
    pool.run(BOTH)
    assert not before & {lane.sandbox_id for lane in pool.lanes()}


def test_an_image_is_what_programs_see(place: ModalExecutor) -> None:
    image = modal.Image.debian_slim().pip_install("numpy").env({"SAMPLE": "of the image"})
    needs = Needs(who="a test", image=image)
    place.prepare(needs)
    code = "import os, numpy; print(os.environ['SAMPLE'], numpy.arange(3).sum())"
    (result,) = place.pool(needs).run([Program(code=code)])
    assert result.stdout == "of the image 3\n"
    lacking = modal.Image.debian_slim().add_local_file("/nowhere", "/somewhere")
    with pytest.raises(ComputeError, match=r"a test: Modal does not build .*/nowhere"):
        place.prepare(Needs(who="a test", image=lacking))


def test_a_service_that_is_away_is_no_result(
    modal_plane: ModalPlane, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("UNREACHABLE_S", "CLOSE_S", "GRACE_S"):
        monkeypatch.setattr(sandboxes, name, 0.5)
    settings = ExecutorSettings(kind="modal", lanes=1, patience_s=2.0, variables=variables)
    gone = ModalExecutor(settings)
    gone.pool(NEEDS).run([Program(code="")])
    modal_plane.drop_connections(30)
    try:
        with pytest.raises(SandboxError, match=r"the sandbox was lost .*no (sandbox|answer)"):
            gone.pool(NEEDS).run([Program(code="", limits=TIGHT)])
    finally:
        modal_plane.restore_connections()
    assert gone.pool(NEEDS).run([Program(code="print(1)")])[0].stdout == "1\n"
    gone.close()


def test_what_is_left_behind_ends_by_itself(
    modal_plane: ModalPlane, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandboxes, "IDLE_S", 1)
    monkeypatch.setattr(sandboxes, "EMPTY_S", 1)
    left = ModalExecutor(ExecutorSettings(kind="modal", lanes=1, variables=variables))
    left.pool(NEEDS).run([Program(code="")])
    (lane,) = left.pool(NEEDS).lanes()
    ended = modal_plane.wait_for("sandbox_ended", sandbox=lane.sandbox_id)
    assert ended["code"] == 124
    left.close()
