"""Local containers are real processes: killed for real, lost for real, replaced for real."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from mortal_steps.compute import local_container, pool
from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.local import LocalCompute
from mortal_steps.errors import DataError, MortalError, StoreError, WorkerError, WorkerLostError
from mortal_steps.system.processes import ProcessId
from mortal_steps.system.scratch import Scratch
from tests.support.paths import ROOT

KEY = "test/0/0"
FACTORY = "tests.support.workers:Counter"


@pytest.fixture
async def make_compute(tmp_path):
    made = []

    def make(**options):
        spec = WorkerSpec(**{"factory": FACTORY, "kwargs": {}, **options})
        compute = LocalCompute({"rollout": spec}, working_dir=os.getcwd(), log_dir=tmp_path)
        made.append(compute)
        return compute

    yield make
    await asyncio.gather(*(compute.close() for compute in made))


async def call(compute, method, **arguments):
    return await compute.call("rollout", method, key=KEY, **arguments)


async def test_state_lives_in_its_own_process(make_compute):
    compute = make_compute(kwargs={"start": 5})
    assert await call(compute, "add", amount=1) == 6
    assert await call(compute, "add", amount=1) == 7
    assert await call(compute, "pid") != os.getpid()


async def test_a_log_does_not_grow_without_end(make_compute, tmp_path, monkeypatch):
    monkeypatch.setattr(local_container, "LONGEST_LOG", 50_000)
    compute = make_compute()
    for _ in range(5):
        await call(compute, "shout", characters=30_000)
    log = tmp_path / "rollout-0.log"
    assert log.stat().st_size < 80_000
    assert log.read_bytes().startswith(b"(what was here was too long)")
    os.kill(compute.processes()["rollout-0"], signal.SIGKILL)
    with pytest.raises(WorkerLostError) as caught:
        await call(compute, "sleep", seconds=60)
    assert len(str(caught.value)) < local_container.LOG_END_BYTES + 1000


async def test_a_killed_worker_is_named_and_replaced(make_compute):
    compute = make_compute()
    await call(compute, "add", amount=3)
    victim = compute.processes()["rollout-0"]
    sleeping = asyncio.create_task(call(compute, "sleep", seconds=30))
    await asyncio.sleep(0.2)
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(WorkerLostError, match=rf"rollout-0 \(process {victim}\) ended: SIGKILL"):
        await sleeping
    assert await call(compute, "add", amount=3) == 3, "a fresh worker has fresh state"


async def test_a_process_whose_gpu_has_failed_ends_and_a_new_one_takes_the_call(
    make_compute, tmp_path
):
    compute, broken = make_compute(), tmp_path / "broken"
    first = await call(compute, "use_gpu", broken=broken)
    broken.touch()
    with pytest.raises(WorkerLostError, match="an illegal memory access") as caught:
        await call(compute, "use_gpu", broken=broken)
    assert f"(process {first}) ended: exit code 1" in str(caught.value)
    assert await call(compute, "use_gpu", broken=broken) != first


async def test_a_killed_worker_is_told_of_even_if_its_log_cannot_be_read(make_compute, tmp_path):
    compute = make_compute()
    await call(compute, "pid")
    (tmp_path / "rollout-0.log").unlink()
    (tmp_path / "rollout-0.log").mkdir()
    os.kill(compute.processes()["rollout-0"], signal.SIGKILL)
    with pytest.raises(WorkerLostError, match=r"ended: SIGKILL; log \S+ cannot be read: "):
        await asyncio.wait_for(call(compute, "sleep", seconds=999), 300)


async def test_workers_start_on_a_kernel_without_handles_of_processes(make_compute, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import errno, os\n"
        "def pidfd_open(pid, flags=0):\n"
        "    raise OSError(errno.ENOSYS, 'Function not implemented')\n"
        "os.pidfd_open = pidfd_open\n"
    )
    compute = make_compute(env={"PYTHONPATH": f"{tmp_path}:{ROOT}"})
    assert await call(compute, "add", amount=3) == 3


async def test_errors_keep_their_kind(make_compute):
    compute = make_compute()
    with pytest.raises(DataError, match="no such thing"):
        await call(compute, "fail", kind="own")
    with pytest.raises(WorkerError, match=r"ZeroDivisionError: one by none[\s\S]*Traceback"):
        await call(compute, "fail", kind="foreign")
    assert await call(compute, "add", amount=1) == 1, "an error does not end the worker"


async def test_an_error_in_the_constructor_reaches_the_caller(make_compute):
    with pytest.raises(DataError, match="must not be negative"):
        await call(make_compute(kwargs={"start": -1}), "pid")


async def test_a_missing_interpreter_is_named(make_compute):
    with pytest.raises(MortalError, match="cannot start rollout-0 with /no/such/python"):
        await call(make_compute(python="/no/such/python"), "pid")


async def test_a_log_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "logs").touch()
    spec = WorkerSpec(factory=FACTORY, kwargs={})
    compute = LocalCompute({"rollout": spec}, working_dir=os.getcwd(), log_dir=tmp_path / "logs")
    with pytest.raises(StoreError, match=r"cannot write .*logs/rollout-0\.log: .*writable"):
        await call(compute, "pid")


async def test_calls_go_to_whoever_is_free(make_compute, tmp_path):
    compute = make_compute(count=2, devices=("0", "1"), threads=3)
    slow = asyncio.create_task(call(compute, "wait_for", path=tmp_path / "done"))
    await asyncio.sleep(0)
    others = {await call(compute, "pid") for _ in range(3)}
    assert len(others) == 1, "the busy worker is left alone"
    (tmp_path / "done").touch()
    assert await slow == "waited"
    places = [await call(compute, "where", worker=index) for index in (0, 1)]
    assert [place["CUDA_VISIBLE_DEVICES"] for place in places] == ["0", "1"]
    assert {place["OMP_NUM_THREADS"] for place in places} == {"3"}


async def test_a_worker_that_keeps_dying_is_in_nobodys_way(make_compute, tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "RESTART_DELAYS_S", (0.0, 0.0, 0.0))
    orders = tmp_path / "dies-rollout-1"
    orders.write_text("die\n" * 4)
    compute = make_compute(count=2, prepare="prepare")
    deadline = time.monotonic() + 60
    while compute.ready_workers("rollout") != [0, 1]:
        assert await call(compute, "echo", blob=b"") == b""
        assert time.monotonic() < deadline
    assert orders.read_text() == ""
    assert [await call(compute, "echo", blob=b"") for _ in range(4)] == [b""] * 4


async def test_a_cancelled_call_does_not_confuse_the_next(make_compute):
    compute = make_compute()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(call(compute, "sleep", seconds=0.5), 0.1)
    assert await call(compute, "add", amount=2) == 2


async def test_files_of_the_working_folder_hide_nothing_installed(tmp_path):
    for name in ("datasets", "random", "logging", "calendar", "pydantic"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('hidden')\n")
    spec = WorkerSpec(factory="collections:Counter", kwargs={"a": 1})
    compute = LocalCompute({"reward": spec}, working_dir=tmp_path, log_dir=tmp_path / "logs")
    try:
        assert await compute.call("reward", "total", key=KEY) == 1
    finally:
        await compute.close()


async def test_large_payloads(make_compute):
    blob = os.urandom(5 << 20)
    assert await call(make_compute(), "echo", blob=blob) == blob


BUSY = 'compute.call("rollout", "sleep", key=key, seconds=60)'


@pytest.mark.parametrize("then", [BUSY, "asyncio.sleep(60)"], ids=["busy", "idle"])
def test_workers_end_with_their_owner(tmp_path, then):
    owner = textwrap.dedent(f"""
        import asyncio, os, pathlib
        from mortal_steps.compute.base import WorkerSpec
        from mortal_steps.compute.local import LocalCompute

        async def main():
            spec = WorkerSpec(factory={FACTORY!r}, kwargs={{}})
            here = pathlib.Path.cwd()
            compute = LocalCompute(
                {{"rollout": spec}}, working_dir=here, log_dir=pathlib.Path({str(tmp_path)!r})
            )
            key = "t/0/0"
            print(await compute.call("rollout", "pid", key=key), flush=True)
            print(await compute.call("rollout", "make_temporary_file", key=key), flush=True)
            await {then}

        asyncio.run(main())
    """)
    process = subprocess.Popen([sys.executable, "-c", owner], stdout=subprocess.PIPE, text=True)
    worker = ProcessId.of(int(process.stdout.readline()))
    temporary = Path(process.stdout.readline().strip())
    assert temporary.exists()
    process.kill()
    process.wait()
    process.stdout.close()
    wait_until_gone(worker)
    wait_until(lambda: not temporary.parent.exists(), "its supervisor removes its folder after it")


def wait_until_gone(process):
    wait_until(lambda: not process.lives(), "the worker ends with its owner")


def wait_until(condition, expected):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, expected
        time.sleep(0.05)


ONE_CALL = f"""
from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.local import call_once
call_once(WorkerSpec(factory={FACTORY!r}, kwargs={{}}), "sleep", seconds=600)
"""


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_a_check_that_is_interrupted_takes_its_process_and_files_along(tmp_path, sign):
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", ONE_CALL], env=env, stderr=subprocess.PIPE, text=True
    ) as owner:
        deadline = time.monotonic() + 60
        while not any("begins" in log.read_text() for log in tmp_path.glob("*/rehearsal.log")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (log,) = tmp_path.glob("*/rehearsal.log")
        worker = ProcessId.of(int(re.search(r"process (\d+) is", log.read_text())[1]))
        owner.send_signal(sign)
        told = owner.communicate(timeout=60)[1]
        assert owner.returncode == -sign
        assert sign == signal.SIGKILL or "KeyboardInterrupt" in told
    wait_until_gone(worker)
    deadline = time.monotonic() + 60
    while list(tmp_path.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def test_the_temporary_files_of_a_killed_worker_go(make_compute):
    compute = make_compute()
    temporary = Path(await call(compute, "make_temporary_file"))
    assert temporary.exists()
    os.kill(compute.processes()["rollout-0"], signal.SIGKILL)
    with pytest.raises(WorkerLostError):
        await call(compute, "sleep", seconds=600)
    assert not temporary.parent.exists()


def test_what_a_kill_of_everybody_leaves_the_next_worker_removes(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (left := tmp_path / "mortal-worker-abcd1234").mkdir()
    (others := tmp_path / "mortal-settings").mkdir()
    used, new = Scratch(), Scratch()
    assert not left.exists()
    assert used.path.exists() and new.path.exists() and others.exists()
    used.remove()
    new.remove()
    assert list(tmp_path.iterdir()) == [others]


def test_a_folder_that_another_process_removes_before_it_is_locked_is_made_anew(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    make, made = tempfile.mkdtemp, []

    def make_and_lose_the_first(**named):
        made.append(Path(make(**named)))
        if len(made) == 1:
            made[0].rmdir()
        return str(made[-1])

    monkeypatch.setattr("tempfile.mkdtemp", make_and_lose_the_first)
    scratch = Scratch()
    assert scratch.path == made[1] and scratch.path.exists()
    scratch.remove()
