"""`mortal stop` of a run on this machine: whom it tells, and what it says where it cannot."""

import signal
import subprocess
import sys
import time

import pytest

from mortal import stopping
from mortal.stopping import stop_local
from mortal_steps.errors import StoreError, TransientError
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.runs.identity import write_identity
from mortal_steps.runs.lease import LeaseRecord
from mortal_steps.runs.run import find_run
from mortal_steps.store import RunStore
from mortal_steps.types import Problem

DRIVE = """
import signal, sys, time
from pathlib import Path
from mortal_steps.runs.lease import acquire
from mortal_steps.runs.run import find_run
run = find_run(Path(sys.argv[1]), "run")
run.acquire()
run.update(status="running")
deaf = sys.argv[2] == "deaf"
signal.signal(signal.SIGINT, signal.SIG_IGN if deaf else signal.default_int_handler)
try:
    print("drives", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    run.update(status="stopped", error="stopped by SIGINT")
    run.release()
"""


@pytest.fixture
def store(tmp_path):
    """A run that nobody drives."""
    store = RunStore(tmp_path / "run")
    config = RunConfig(run_id="run", data={"source": "x"}, rewards={"functions": ["m:f"]})
    write_identity(store, config, [Problem(id="p", prompt="a")], [])
    return store


@pytest.fixture
def drive(store):
    """Starts a process that drives the run."""
    started = []

    def start(how):
        command = [sys.executable, "-c", DRIVE, str(store.root.parent), how]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout.readline() == "drives\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_run_is_stopped_by_its_driver(store, drive, monkeypatch):
    monkeypatch.setattr(stopping, "LOOK_EVERY_S", 0.05)
    deaf = drive("deaf")
    with pytest.raises(TransientError, match=rf"process {deaf.pid} .* drives run run"):
        stop_local(store.root.parent, "run", 0.1)
    deaf.send_signal(signal.SIGKILL)
    deaf.wait()
    with pytest.raises(
        StoreError,
        match=r"no process drives run run .*interrupted, step 0",
    ):
        stop_local(store.root.parent, "run", 60)

    drive("hears")
    ended = stop_local(store.root.parent, "run", 60)
    assert (ended.status, ended.error) == ("stopped", "stopped by SIGINT")


def test_a_driver_on_another_machine_is_stopped_there(store):
    driver = LeaseRecord(
        host="elsewhere", boot="b", pid=7, started="1", token="t", renewed_at=time.time()
    )
    store.write_record("lease.json", driver, LeaseRecord)
    with pytest.raises(
        StoreError, match=r"process 7 on elsewhere.*`mortal stop run --runs-dir .*` on"
    ):
        stop_local(store.root.parent, "run", 60)


def test_a_driver_that_ends_by_itself_while_it_is_asked_is_no_error(store, drive, monkeypatch):
    process = drive("listens")
    found = stopping._driver_here(find_run(store.root.parent, "run"))
    process.kill()
    process.wait()
    monkeypatch.setattr(stopping, "_driver_here", lambda run: found)
    assert stop_local(store.root.parent, "run", 30).status == "interrupted"
