"""Workers that are forked from a process with their imports are as good as started ones."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.local import LocalCompute
from mortal_steps.compute.local_container import KEEPING_MEMORY, LocalContainer
from mortal_steps.errors import WorkerLostError
from mortal_steps.system.processes import ProcessId
from tests.support.paths import ROOT

KEY = "test/0/0"
FORKED = "mortal_steps.compute.forkserver"
STARTED = "mortal_steps.compute.container"


@pytest.fixture
async def make_compute(tmp_path):
    made = []

    def make(*modules, **options):
        spec = WorkerSpec(
            **{
                "factory": "tests.support.workers:Counter",
                "kwargs": {},
                "count": 2,
                "preload": ("tests.support.workers", *modules),
                "env": {"PYTHONPATH": str(ROOT), "IMPORTING": str(tmp_path / "importing")},
                **options,
            }
        )
        compute = LocalCompute({"rollout": spec}, working_dir=tmp_path, log_dir=tmp_path)
        made.append(compute)
        return compute

    yield make
    await asyncio.gather(*(compute.close() for compute in made))


async def call(compute, method, worker=0, **arguments):
    return await compute.call("rollout", method, key=KEY, worker=worker, **arguments)


async def processes(compute):
    return [await call(compute, "process", worker) for worker in (0, 1)]


async def test_workers_of_a_kind_are_forked_from_one_process(make_compute, tmp_path):
    compute = make_compute("html.parser")
    first, second = await processes(compute)
    assert first["parent"] == second["parent"] != os.getpid()
    assert FORKED in first["command"]
    assert [first["name"], second["name"]] == ["rollout-0", "rollout-1"]
    assert "html.parser" in first["modules"]
    assert await call(compute, "add", 0, amount=3) == 3
    assert await call(compute, "add", 1, amount=1) == 1, "a state of its own"


async def test_a_forked_worker_has_what_a_started_one_has(make_compute, tmp_path):
    forked, _ = await processes(make_compute())
    started, _ = await processes(make_compute(preload=()))
    assert FORKED in forked["command"] and STARTED in started["command"]
    for process in (forked, started):
        assert process["folder"] == str(tmp_path)
        assert process["temporary"] == process["environment"]["TMPDIR"]
        del process["environment"]["TMPDIR"]
    assert forked["environment"] == started["environment"] | KEEPING_MEMORY
    assert forked["session"] != forked["parent"]


async def test_many_orders_wait_for_the_imports_whatever_the_environment_holds(
    make_compute, monkeypatch
):
    """A cluster's environment may be large; nobody reads the orders before the imports end."""
    for number in range(40):
        monkeypatch.setenv(f"OF_THE_CLUSTER_{number}", "x" * 2000)
    compute = make_compute("html.parser", count=12)
    found = await asyncio.gather(*(call(compute, "process", worker) for worker in range(12)))
    assert all(FORKED in each["command"] for each in found)


async def test_torch_computes_with_the_threads_of_the_worker(make_compute):
    threads = [
        await call(make_compute("torch", threads=count), "threads_of_torch") for count in (1, 2, 3)
    ]
    assert threads == [1, 2, 3]


async def test_a_worker_of_another_environment_is_started(make_compute, monkeypatch):
    first, _ = await processes(make_compute())
    monkeypatch.setenv("PREFECT_API_URL", "http://somewhere")
    same, _ = await processes(make_compute())
    assert same["parent"] == first["parent"]
    assert same["environment"]["PREFECT_API_URL"] == "http://somewhere"
    monkeypatch.setenv("HF_HOME", "/somewhere")
    other, _ = await processes(make_compute())
    assert STARTED in other["command"]
    assert other["environment"]["HF_HOME"] == "/somewhere"


async def test_a_server_that_nobody_needs_makes_room_for_another(make_compute):
    compute = make_compute()
    first, _ = await processes(compute)
    await compute.close()
    other, _ = await processes(make_compute("html.parser"))
    assert FORKED in other["command"] and other["parent"] != first["parent"]
    assert not ProcessId.of(first["parent"]).lives()


async def test_a_killed_worker_is_named_and_forked_again(make_compute):
    compute = make_compute()
    (first, _), victim = await processes(compute), compute.processes()["rollout-0"]
    sleeping = asyncio.create_task(call(compute, "sleep", seconds=30))
    await asyncio.sleep(0.2)
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(WorkerLostError, match=rf"rollout-0 \(process {victim}\) ended: SIGKILL"):
        await sleeping
    again = await call(compute, "process")
    assert again["parent"] == first["parent"]


async def test_a_worker_that_does_not_end_by_itself_is_killed(make_compute, tmp_path):
    compute = make_compute()
    busy = asyncio.create_task(call(compute, "sleep", seconds=600))
    other = await call(compute, "process", 1)
    async with asyncio.timeout(60):
        while "begins" not in (tmp_path / "rollout-0.log").read_text():
            await asyncio.sleep(0.01)
    await compute.close()
    with pytest.raises(WorkerLostError, match="SIGKILL"):
        await busy
    assert ProcessId.of(other["parent"]).lives(), "the server itself goes on"


async def test_cancelling_all_tasks_of_the_loop_leaves_the_workers(make_compute):
    """SIGTERM does that to a deployment's flow run, which then saves the run by its actor."""
    compute = make_compute()
    await processes(compute)
    before = compute.processes()
    calling = asyncio.create_task(call(compute, "sleep", seconds=600))
    await asyncio.sleep(0.2)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert await call(compute, "add", 1, amount=1) == 1
    assert compute.processes() == before


async def test_a_killed_server_takes_its_workers_along(make_compute):
    compute = make_compute()
    first, _ = await processes(compute)
    sleeping = asyncio.create_task(call(compute, "sleep", seconds=600))
    await asyncio.sleep(0.2)
    os.kill(first["parent"], signal.SIGKILL)
    with pytest.raises(WorkerLostError, match="ended: SIGKILL"):
        await sleeping
    again = await call(compute, "process")
    assert again["parent"] not in (first["parent"], os.getpid())


async def test_a_server_that_ends_while_it_imports_is_named(make_compute, tmp_path):
    compute = make_compute("tests.support.preloaded.slow")
    calling = asyncio.create_task(call(compute, "pid"))
    os.kill(await importing(tmp_path, calling), signal.SIGKILL)
    with pytest.raises(WorkerLostError, match="rollout-0 ended: SIGKILL"):
        await calling


async def importing(folder, task):
    """The process that imports the slow module."""
    deadline = time.monotonic() + 60
    while not (folder / "importing").exists() or not (folder / "importing").read_text():
        assert time.monotonic() < deadline and not task.done()
        await asyncio.sleep(0.05)
    return int((folder / "importing").read_text())


async def test_a_log_begins_with_what_the_imports_said(make_compute, tmp_path):
    await processes(make_compute("tests.support.preloaded.talkative"))
    for worker in ("rollout-0", "rollout-1"):
        assert (tmp_path / f"{worker}.log").read_text().startswith("said while importing\n")


async def test_a_log_that_takes_nothing_ends_nobody(make_compute, monkeypatch):
    """As on a full disk, of which the run itself tells."""
    takes_nothing = os.open(os.devnull, os.O_RDONLY)
    monkeypatch.setattr(LocalContainer, "_log", lambda _: os.fdopen(takes_nothing, "rb"))
    compute = make_compute("tests.support.preloaded.talkative")
    assert await call(compute, "add", amount=1) == 1


async def test_a_module_that_cannot_be_imported_ends_nobody(make_compute, tmp_path):
    assert await call(make_compute("no.such.module"), "add", amount=1) == 1
    assert "cannot import no.such.module" in (tmp_path / "rollout-0.log").read_text()


async def test_workers_on_a_machine_with_a_gpu_are_started(make_compute, tmp_path, monkeypatch):
    monkeypatch.setattr("mortal_steps.system.gpus.GPUS", (str(tmp_path),))
    process, _ = await processes(make_compute())
    assert STARTED in process["command"]


async def test_workers_with_devices_of_their_own_are_started(make_compute):
    process, _ = await processes(make_compute(devices=("0", "1")))
    assert STARTED in process["command"]


@pytest.mark.parametrize("module", ["tests.support.workers", "tests.support.preloaded.slow"])
def test_server_workers_and_files_end_with_their_owner_even_in_an_import(tmp_path, module):
    owner = textwrap.dedent(f"""
        import asyncio, os
        from pathlib import Path
        from mortal_steps.compute.base import WorkerSpec
        from mortal_steps.compute.local import call_once

        call_once(
            WorkerSpec(
                factory="tests.support.workers:Counter",
                kwargs={{}},
                preload=({module!r},),
                env={{"PYTHONPATH": {str(ROOT)!r}, "IMPORTING": {str(tmp_path / "importing")!r}}},
            ),
            "sleep",
            seconds=600,
        )
    """)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", owner], cwd=ROOT, env={**os.environ, "TMPDIR": str(temporary)}
    ) as process:
        deadline = time.monotonic() + 60
        slow = module.endswith("slow")
        while not (
            (tmp_path / "importing").exists() if slow else list(temporary.rglob("rehearsal.log"))
        ):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.2)
        process.kill()
    while list(temporary.iterdir()):
        assert time.monotonic() < deadline, "the fork server outlived its owner"
        time.sleep(0.05)


def test_what_imports_print_does_not_reach_the_terminal(tmp_path):
    script = tmp_path / "owner.py"
    script.write_text(
        textwrap.dedent(f"""
        from mortal_steps.compute.base import WorkerSpec
        from mortal_steps.compute.local import call_once

        spec = WorkerSpec(
            factory="tests.support.workers:Counter",
            kwargs={{}},
            preload=("tests.support.preloaded.talkative",),
            env={{"PYTHONPATH": {str(ROOT)!r}}},
        )
        print(call_once(spec, "add", amount=1))
    """)
    )
    told = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    assert told.stdout == "1\n" and told.stderr == ""
