"""A run's next step is committed while the event loop goes on."""

import asyncio
import threading

import pytest

from mortal_steps.orchestration.session import Session
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.runs.manifest import read_manifest
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.system.threads import in_thread
from tests.support.run_info import run_info

PATIENCE_S = 60.0


class HeldDisk(RunStore):
    """Commits when it is let."""

    def __init__(self, root):
        super().__init__(root)
        self.asked, self.free = threading.Event(), threading.Event()

    def write_record(self, relative, body, kind):
        self.asked.set()
        assert self.free.wait(PATIENCE_S), "the event loop waits for the disk"
        return super().write_record(relative, body, kind)


@pytest.fixture
def run(tmp_path):
    return Run(HeldDisk(tmp_path), None, run_info(tmp_path))


async def advancing(run, step):
    """A task that is at the disk."""
    task = asyncio.create_task(run.advance(step))
    while not run.store.asked.is_set():
        await asyncio.sleep(0.001)
    return task


def manifest(run):
    return read_manifest(run.store, num_eval_problems=1)


def test_the_loop_does_not_wait_for_the_disk_and_the_step_is_committed_at_the_end(run):
    async def advance():
        task = await advancing(run, 3)
        assert not task.done() and not run.store.path("manifest.json").exists()
        run.store.free.set()
        await task

    asyncio.run(advance())
    assert manifest(run).step == 3


def test_who_is_cancelled_meanwhile_hears_of_it_when_the_step_is_committed(run):
    async def cancel():
        task = await advancing(run, 3)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0.01)
        assert not task.done()
        run.store.free.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return manifest(run).step

    assert asyncio.run(cancel()) == 3


def test_what_the_log_marks_vouch_for_is_what_was_there_when_the_step_ended(run):
    async def append_meanwhile():
        run.append("timings.jsonl", {"step": 3})
        task = await advancing(run, 3)
        run.append("timings.jsonl", {"step": 4})
        run.store.free.set()
        await task

    asyncio.run(append_meanwhile())
    assert run.logs.cut(manifest(run).logs) == []
    assert run.logs.read("timings.jsonl") == [{"step": 3}]


def test_an_error_of_the_thread_is_the_callers():
    def fail():
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        asyncio.run(in_thread(fail))


def test_a_stage_is_known_as_committed_by_its_file(tmp_path):
    run = Run(RunStore(tmp_path), RunConfig(), run_info(tmp_path))
    session = Session(run, None)
    (tmp_path / "steps" / "000003").mkdir(parents=True)
    for name in ("generations-1.parquet", "result.json"):
        (tmp_path / "steps" / "000003" / name).touch()
    assert session.is_committed("generate", 3, 1) and session.is_committed("train_step", 3)
    assert not session.is_committed("generate", 3, 0)
    assert not session.is_committed("reward", 3, 1)
    assert not session.is_committed("train_step", 4)
