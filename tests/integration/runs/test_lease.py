"""One process drives a run; a dead one's run is taken over, a living one's is not."""

import asyncio
import dataclasses
import errno
import fcntl
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from mortal_flows import deployed
from mortal_flows.deployed import wait_for_holder
from mortal_steps.errors import LeaseLostError, StoreError
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.runs import lease
from mortal_steps.runs.lease import LeaseRecord, acquire, is_driven, read_lease
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.system.processes import ProcessId
from tests.support.chaos.processes import started_by
from tests.support.run_info import run_info

HOLD = """
import subprocess, sys, time
from pathlib import Path
from mortal_steps.runs.lease import acquire
from mortal_steps.store import RunStore
held = acquire(RunStore(Path(sys.argv[1])))
if len(sys.argv) > 2:  # a worker that inherits the lock and outlives its owner
    subprocess.Popen(["sleep", sys.argv[2]], pass_fds=held.filenos())
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "run")


@pytest.fixture
def hold(store):
    """Starts processes that take the lease of `store` and keep it."""
    started = []

    def start(*arguments):
        command = [sys.executable, "-c", HOLD, str(store.root), *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_second_process_is_refused_until_the_first_is_dead(store, hold):
    first = hold()
    assert is_driven(store)
    with pytest.raises(
        StoreError, match=f"in use by process {first.pid} on {socket.gethostname()}"
    ):
        acquire(store)
    first.send_signal(signal.SIGSTOP)  # it renews nothing, but it is there
    with pytest.raises(StoreError, match=f"in use by process {first.pid}"):
        acquire(store)
    first.kill()
    first.wait()
    assert not is_driven(store)
    acquire(store).release()


@pytest.mark.parametrize("removed", ["lock", "lease.json"])
def test_a_second_process_is_refused_whatever_file_was_removed(store, hold, monkeypatch, removed):
    monkeypatch.setattr(lease, "ORPHANS_GO_S", 0.2)
    first = hold()
    first.send_signal(signal.SIGSTOP)  # it cannot write lease.json again
    store.path(removed).unlink()
    named = "some process holds" if removed == "lease.json" else f"in use by process {first.pid}"
    with pytest.raises(StoreError, match=named):
        acquire(store)
    first.kill()
    first.wait()
    acquire(store).release()


def test_where_locks_do_not_reach_a_living_holder_is_enough(store, hold, monkeypatch):
    """As on a network file system."""
    monkeypatch.setattr(lease, "lock_file", lambda *arguments: True)
    first = hold()
    with pytest.raises(StoreError, match=f"in use by process {first.pid}"):
        acquire(store)


def test_a_file_system_without_locks_is_named_with_what_helps(store, monkeypatch):
    def lock(descriptor, how):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", lock)
    with pytest.raises(StoreError, match=r"/lock cannot be locked: Function not .* flock\)"):
        acquire(store)


def test_a_removed_record_is_written_again(store, monkeypatch):
    monkeypatch.setattr(lease, "RENEW_EVERY_S", 0.02)
    held = acquire(store)
    token = read_lease(store).token
    store.path("lease.json").unlink()
    deadline = time.monotonic() + 60
    while (found := read_lease(store)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert found.token == token
    held.release()


def test_the_workers_of_a_dead_driver_are_waited_for(store, hold):
    first = hold("60")
    (worker,) = map(ProcessId.of, started_by(first.pid))
    first.kill()
    first.wait()
    assert not is_driven(store)
    with ThreadPoolExecutor(1) as threads:
        acquiring = threads.submit(acquire, store)
        with pytest.raises(TimeoutError):
            acquiring.result(0.3)
        worker.kill()
        acquiring.result().release()


def test_workers_that_do_not_go_are_named_by_what_they_hold(store, hold, monkeypatch):
    monkeypatch.setattr(lease, "ORPHANS_GO_S", 0.2)
    first = hold("3")
    first.kill()
    first.wait()
    with pytest.raises(StoreError, match=rf"driven by process {first.pid} .*fuser -v .*/lock`"):
        acquire(store)


def foreign(age_s):
    return LeaseRecord(
        host="elsewhere", boot="b", pid=7, started="1", token="t", renewed_at=time.time() - age_s
    )


def test_another_machine_is_believed_for_as_long_as_it_renews(store, monkeypatch):
    monkeypatch.setattr(lease, "RENEW_EVERY_S", 0.02)
    store.write_record("lease.json", foreign(age_s=20), LeaseRecord)
    assert is_driven(store)
    told = r"by process 7 on elsewhere, which renewed its lease 2\d s ago.* in [34]\d s"
    with pytest.raises(StoreError, match=told):
        acquire(store)
    store.write_record("lease.json", foreign(age_s=61), LeaseRecord)
    assert not is_driven(store)
    held = acquire(store)
    assert read_lease(store).host == socket.gethostname()
    held.release()
    assert read_lease(store) is None


def test_a_machine_whose_clock_is_behind_is_believed_when_it_renews(store, monkeypatch):
    monkeypatch.setattr(lease, "RENEW_EVERY_S", 2.0)
    behind, done = foreign(age_s=600), threading.Event()
    store.write_record("lease.json", behind, LeaseRecord)

    def renew():
        for seconds in range(1, 200):
            renewed = dataclasses.replace(behind, renewed_at=behind.renewed_at + seconds)
            store.write_record("lease.json", renewed, LeaseRecord)
            if done.wait(0.1):
                break
        return renewed

    with ThreadPoolExecutor(1) as threads:
        renewing = threads.submit(renew)
        with pytest.raises(
            StoreError, match=r"process 7 on elsewhere, which has just .* the clocks"
        ):
            acquire(store)
        done.set()
        renewed = renewing.result()
    assert read_lease(store) == renewed


def test_a_machine_that_died_with_its_clock_far_ahead_is_watched_and_not_believed(
    store, monkeypatch
):
    monkeypatch.setattr(lease, "RENEW_EVERY_S", 0.02)
    store.write_record("lease.json", foreign(age_s=-24 * 3600), LeaseRecord)
    assert not is_driven(store)
    acquire(store).release()


def test_another_container_of_this_machine_is_seen_and_its_locks_tell_its_end(store, hold):
    first = hold()
    record = dataclasses.replace(read_lease(store), namespace="pid:[1]", pid=1, started="1")
    store.write_record("lease.json", record, LeaseRecord)
    assert is_driven(store), "process 1 here is another one"
    with pytest.raises(StoreError, match=r"in use by process 1 on .* renewed its lease \d+ s ago"):
        acquire(store)
    first.kill()
    first.wait()
    acquire(store).release()


async def test_a_holder_is_waited_for_as_long_as_one_has_patience(store, hold, monkeypatch):
    monkeypatch.setattr(deployed, "LOOK_EVERY_S", 0.02)
    said = []
    assert await wait_for_holder(store, 60, said.append)
    assert said == [], "nobody holds it"
    first = hold()
    assert not await wait_for_holder(store, 0.1, said.append)
    assert f"process {first.pid} on {socket.gethostname()} drives run run" in said[0]
    assert "waiting up to 0 s" in said[0]
    asyncio.get_running_loop().call_later(0.2, first.kill)
    assert await wait_for_holder(store, 60, said.append)
    acquire(store).release()


async def test_a_machine_that_is_gone_is_waited_for_until_its_lease_is_stale(store, monkeypatch):
    monkeypatch.setattr(deployed, "LOOK_EVERY_S", 0.02)
    monkeypatch.setattr(lease, "RENEW_EVERY_S", 0.02)
    clock = SimpleNamespace(time=lambda: now, sleep=time.sleep, monotonic=time.monotonic)
    monkeypatch.setattr(lease, "time", clock)
    now = time.time()
    store.write_record("lease.json", foreign(age_s=59), LeaseRecord)
    said = []

    async def a_second_later():
        nonlocal now
        await asyncio.sleep(0.1)
        assert is_driven(store)
        now += 2

    later = asyncio.create_task(a_second_later())
    assert await wait_for_holder(store, 60, said.append)
    await later
    assert "process 7 on elsewhere" in said[0]
    acquire(store).release()


def test_a_process_of_the_same_id_is_not_the_holder(store):
    held = acquire(store)
    record = read_lease(store)
    held.release()
    assert record.holds()
    assert not dataclasses.replace(record, started="1").holds()
    assert dataclasses.replace(record, started="1", boot="of another machine").holds()


def test_a_damaged_record_leaves_it_to_the_lock(store, hold):
    first = hold()
    first.kill()
    first.wait()
    store.path("lease.json").write_bytes(b"{")
    acquire(store).release()


def test_the_lease_is_renewed(store, monkeypatch):
    monkeypatch.setattr(lease, "RENEW_EVERY_S", 0.02)
    held = acquire(store)
    before = read_lease(store)
    deadline = time.monotonic() + 60
    while read_lease(store) == before:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert read_lease(store).token == before.token
    held.release()


def test_a_driver_that_was_taken_over_writes_nothing_more(store):
    run = Run(store, RunConfig(), run_info(store.root))
    run.acquire()
    run.update(status="running")
    assert run.status() == "running"
    theirs = foreign(age_s=0)
    store.write_record("lease.json", theirs, LeaseRecord)
    before = store.path("manifest.json").read_bytes()
    with pytest.raises(LeaseLostError, match="taken over by process 7 on elsewhere"):
        run.update(step=1)
    assert store.path("manifest.json").read_bytes() == before
    run.release()
    assert read_lease(store) == theirs
