"""mortal_steps.sandbox.slots: lanes of several processes run no more programs than those of one."""

import os
import signal
import threading
from pathlib import Path

import pytest

from mortal_steps.errors import StoreError
from mortal_steps.sandbox.base import ExecutionResult, Program
from mortal_steps.sandbox.pool import Pool
from mortal_steps.sandbox.slots import slot_in

PATIENCE_S = 20.0


def take(folder: Path, number: int) -> threading.Event:
    """Take a slot in a thread; the event is set when it was had."""
    had = threading.Event()

    def run() -> None:
        with slot_in(folder, number):
            had.set()

    threading.Thread(target=run, daemon=True).start()
    return had


def test_a_slot_is_had_by_one_at_a_time(tmp_path: Path) -> None:
    with slot_in(tmp_path, 0):
        second = take(tmp_path, 0)
        assert take(tmp_path, 1).wait(PATIENCE_S), "another lane's slot is free"
        assert not second.is_set()
    assert second.wait(PATIENCE_S)


def test_a_process_that_is_killed_gives_its_slot_back(tmp_path: Path) -> None:
    ready, told = os.pipe()
    holder = os.fork()
    if holder == 0:
        with slot_in(tmp_path, 0):
            os.write(told, b"x")
            signal.pause()
        os._exit(1)
    os.read(ready, 1)
    had = take(tmp_path, 0)
    assert not had.wait(0.05)
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    assert had.wait(PATIENCE_S)


def test_a_process_forked_meanwhile_holds_no_slot(tmp_path: Path) -> None:
    with slot_in(tmp_path, 0):
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(1)
    assert take(tmp_path, 0).wait(PATIENCE_S)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_slot_that_cannot_be_had_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "lanes").touch()
    with pytest.raises(StoreError, match="lanes"), slot_in(tmp_path / "lanes", 0):
        pass


class Counts:
    """A lane that knows how many programs run at a time."""

    is_worn_out = False
    running, most = 0, 0
    counting = threading.Lock()
    meeting = threading.Barrier(2)

    def run(self, program: Program) -> ExecutionResult:
        with Counts.counting:
            Counts.running += 1
            Counts.most = max(Counts.most, Counts.running)
        Counts.meeting.wait(PATIENCE_S)
        with Counts.counting:
            Counts.running -= 1
        Counts.meeting.wait(PATIENCE_S)
        return ExecutionResult(success=True, stdout="", stderr="", exit_code=0, duration=0.0)

    def close(self) -> None:
        pass


def test_two_pools_together_run_as_many_programs_as_one(tmp_path: Path) -> None:
    def slot(number: int) -> object:
        return slot_in(tmp_path, number)

    pools = [Pool(Counts, 2, slot=slot) for _ in range(2)]
    asked = [
        threading.Thread(target=pool.run, args=([Program(code="")] * 4,), daemon=True)
        for pool in pools
    ]
    for each in asked:
        each.start()
    for each in asked:
        each.join(PATIENCE_S)
    for pool in pools:
        pool.close()
    assert (Counts.most, Counts.running) == (2, 0)
