"""A call in a process of its own, beside a block of code."""

import subprocess
import sys
import textwrap
import time

from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.local import called_beside
from tests.support.paths import ROOT


def worker_of(tmp_path, *modules):
    return WorkerSpec(
        factory="tests.support.workers:Counter",
        kwargs={},
        preload=modules,
        env={"PYTHONPATH": str(ROOT), "IMPORTING": str(tmp_path / "importing")},
    )


def test_a_call_beside_a_block_is_made_and_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spec = worker_of(tmp_path, "tests.support.workers")
    with called_beside(spec, "write", path=str(tmp_path / "written")):
        deadline = time.monotonic() + 60
        while not (tmp_path / "written").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
    began = time.monotonic()
    with called_beside(spec, "sleep", seconds=600):
        pass
    assert time.monotonic() - began < 60
    assert [path.name for path in tmp_path.iterdir()] == ["written"]


def test_a_call_beside_a_block_that_fails_is_somebody_elses_to_tell(tmp_path, caplog):
    caplog.set_level("INFO")
    spec = worker_of(tmp_path, "tests.support.workers")
    with called_beside(spec, "fail", kind="own"):
        deadline = time.monotonic() + 60
        while "no such thing" not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert [record.levelname for record in caplog.records if "no such" in record.message] == [
        "INFO"
    ]


def test_a_call_beside_a_block_that_cannot_begin_ends_with_the_block():
    script = f"""
        import os, resource, time
        from mortal_steps.compute.base import WorkerSpec
        from mortal_steps.compute.local import begin_imports, called_beside

        spec = WorkerSpec(
            factory="tests.support.workers:Counter",
            kwargs={{}},
            preload=("tests.support.workers",),
            env={{"PYTHONPATH": {str(ROOT)!r}}},
        )
        begin_imports(spec)
        next_free = os.dup(0)
        os.close(next_free)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_free, most))
        with called_beside(spec, "pid"):
            time.sleep(0.5)
        print("the block has ended")
    """
    told = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert told.stdout == "the block has ended\n"


def test_a_worker_that_cannot_be_forked_is_not_started_beside_a_block(tmp_path):
    with called_beside(worker_of(tmp_path), "write", path=str(tmp_path / "written")):
        time.sleep(0.1)
    assert not list(tmp_path.iterdir())
