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

from mortal_steps.compute import forking
from mortal_steps.compute.base import CallKey, WorkerSpec
from mortal_steps.compute.local import LocalCompute
from mortal_steps.compute.local_container import LocalContainer
from mortal_steps.errors import WorkerLostError
from mortal_steps.system.processes import ProcessId
from tests.support.paths import ROOT

KEY = CallKey(run_id="test", stage="test", step=0)
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
        assert process["environment"].pop("TMPDIR") == process["environment"].pop(
            "MORTAL_WORKER_SCRATCH"
        )
    assert forked["environment"] == started["environment"]
    assert forked["session"] != forked["parent"]


async def test_torch_computes_with_the_threads_of_the_worker(make_compute):
    threads = [
        await call(make_compute("torch", threads=count), "threads_of_torch") for count in (1, 2, 3)
    ]
    assert threads == [1, 2, 3]


async def test_workers_of_other_environments_have_other_servers(make_compute, monkeypatch):
    first, _ = await processes(make_compute())
    monkeypatch.setenv("PREFECT_API_URL", "http://somewhere")
    same, _ = await processes(make_compute())
    assert same["parent"] == first["parent"]
    assert same["environment"]["PREFECT_API_URL"] == "http://somewhere"
    monkeypatch.setenv("HF_HOME", "/somewhere")
    other, _ = await processes(make_compute())
    assert other["parent"] != first["parent"]
    assert other["environment"]["HF_HOME"] == "/somewhere"


async def test_servers_that_nobody_needs_go(make_compute, monkeypatch):
    needed = make_compute()
    await call(needed, "pid")
    for number in range(forking.MOST_SERVERS + 1):
        compute = make_compute(env={"PYTHONPATH": str(ROOT), "NUMBER": str(number)})
        await call(compute, "pid")
        await compute.close()
    assert len(forking._servers) <= forking.MOST_SERVERS + 1
    assert any(server.is_needed() for server in forking._servers.values())
    assert await call(needed, "add", amount=1) == 1


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


async def test_a_worker_that_has_ended_is_not_killed_again(make_compute):
    """The number of its handle may be that of another worker's by then."""
    compute = make_compute()
    server = (await call(compute, "process"))["parent"]
    worker = compute._pools["rollout"].containers[0].process
    os.kill(server, signal.SIGSTOP)  # it cannot tell the exit status
    try:
        os.kill(worker.pid, signal.SIGKILL)
        while not hasattr(worker, "_patience"):  # its end has not been seen yet
            await asyncio.sleep(0.01)
        with pytest.raises(ProcessLookupError):
            worker.kill()
    finally:
        os.kill(server, signal.SIGCONT)


async def test_a_killed_server_takes_nobody_along(make_compute):
    compute = make_compute()
    first, second = await processes(compute)
    victim = ProcessId.of(compute.processes()["rollout-0"])
    os.kill(first["parent"], signal.SIGKILL)
    assert await call(compute, "add", 1, amount=2) == 2
    victim.kill()
    with pytest.raises(WorkerLostError, match="its exit code is not known"):
        await call(compute, "sleep", seconds=30)
    again = await call(compute, "process")
    assert again["parent"] not in (first["parent"], os.getpid())
    assert (await call(compute, "process", 1))["session"] == second["session"]


async def test_a_server_that_ends_while_it_imports_is_named(make_compute, tmp_path):
    compute = make_compute("tests.support.preloaded.slow")
    calling = asyncio.create_task(call(compute, "pid"))
    os.kill(await importing(tmp_path, calling), signal.SIGKILL)
    with pytest.raises(WorkerLostError, match=r"rollout-0 could not be started: .*\(SIGKILL\)"):
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
    assert process["parent"] == os.getpid() and STARTED in process["command"]


async def test_workers_are_started_on_a_system_without_handles_of_processes(
    make_compute, monkeypatch
):
    monkeypatch.setattr(forking, "_can_fork", lambda: False)
    process, _ = await processes(make_compute())
    assert process["parent"] == os.getpid() and STARTED in process["command"]


async def test_workers_with_devices_of_their_own_are_started(make_compute):
    process, _ = await processes(make_compute(devices=("0", "1")))
    assert process["parent"] == os.getpid()


WAITS = "sys.stdin.read()"
ASKS = (
    "Path('scratch').mkdir(); own = {'MORTAL_WORKER_SCRATCH': os.path.abspath('scratch')}; "
    "asyncio.run(server.fork('w', working_dir='.', environment=own, descriptors=[0, 1]))"
)


@pytest.mark.parametrize(
    ("module", "then"),
    [
        ("html.parser", WAITS),
        ("tests.support.preloaded.slow", WAITS),
        ("tests.support.preloaded.slow", ASKS),
    ],
)
def test_a_server_ends_with_its_owner_even_in_an_import(tmp_path, module, then):
    owner = textwrap.dedent(f"""
        import asyncio, os, sys
        from pathlib import Path
        from mortal_steps.compute.forking import ForkServer

        environment = {{**os.environ, "PYTHONPATH": {str(ROOT)!r}, "IMPORTING": "importing"}}
        server = ForkServer(sys.executable, [{module!r}], environment)
        print(server._process.pid, flush=True)
        {then}
    """)
    with subprocess.Popen(
        [sys.executable, "-c", owner],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        server = ProcessId.of(int(process.stdout.readline()))
        deadline = time.monotonic() + 60
        while module.endswith("slow") and not (tmp_path / "importing").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        while then == ASKS and not (tmp_path / "scratch").exists():
            time.sleep(0.05)
        time.sleep(0.2)  # so that the order is there
        assert server.lives()
        process.kill()
    while server.lives():
        assert time.monotonic() < deadline, "the fork server outlived its owner"
        time.sleep(0.05)
    assert not (tmp_path / "scratch").exists()


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
