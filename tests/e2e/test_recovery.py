"""Every way back of a killed deployment run ends with the same bits, the automatic one too."""

import contextlib
import os
import signal
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from mortal_steps.runs.lease import read_lease
from mortal_steps.runs.run import find_run
from mortal_steps.store import RunStore
from tests.support.command import Mortal, wait_for_step
from tests.support.deployments import as_parameter, tiny_config
from tests.support.project import write_project
from tests.support.undisturbed import assert_same, begun, undisturbed

STEPS = 12
ATTEMPTS = 3
SILENCE_S = 60  # heartbeats come every 30 s, or later from a slow machine


@pytest.fixture(scope="module")
def mortal(tmp_path_factory, server):
    folder = tmp_path_factory.mktemp("recovery")
    write_project(folder)
    return Mortal(folder, server.api_url)


@pytest.fixture(scope="module")
def whole(mortal):
    return undisturbed(mortal.folder, tiny_config(mortal.folder, "whole", max_steps=STEPS))


@pytest.fixture(scope="module")
def automations(mortal, prefect):
    """What `mortal automate` says; times as short as may be, three starts of a flow run."""
    times = ("--silence-s", str(SILENCE_S), "--pause-s", "10")
    mortal("automate", "--attempts", "2")
    yield mortal("automate", *times, "--attempts", str(ATTEMPTS))
    assert mortal("automate", "--remove").count("removed") == 3


def kill_at(mortal, run_id, step, sign=signal.SIGKILL):
    """Signal the process that drives a run, once it has done `step` steps."""
    wait_for_step(mortal, run_id, step)
    os.kill(read_lease(RunStore(mortal.folder / "runs" / run_id)).pid, sign)


@contextlib.contextmanager
def writing_to_the_servers_database():
    """Somebody else writes half of the time, in transactions of 5 ms."""
    database = Path(os.environ["MORTAL_STATE_DIR"], "prefect", "prefect.db")
    done = threading.Event()

    def write():
        with contextlib.closing(sqlite3.connect(database, timeout=60, isolation_level=None)) as db:
            db.execute("create table noise (number int)")
            while not done.wait(0.005):
                db.execute("begin immediate")
                db.execute("insert into noise values (1)")
                time.sleep(0.005)
                db.execute("commit")
            db.execute("drop table noise")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        done.set()
        writer.join()


def assert_saved(mortal, run_id, since):
    """The run was stopped with a checkpoint of all that it had trained, at least `since` steps."""
    run = find_run(mortal.folder / "runs", run_id)
    assert run.manifest.status == "stopped"
    assert "state saved" in run.manifest.error
    assert run.manifest.checkpoints[-1].step >= max(since, run.manifest.step)


def named(states, *names):
    """Those of the states that have one of these names, in order."""
    return [state for state in states if state in names]


def test_a_stopped_run_comes_back_by_retry_and_by_a_new_deployment_run(prefect, mortal, whole):
    """Stopped by SIGKILL, and by Prefect."""
    config = tiny_config(mortal.folder, "by-hand", max_steps=STEPS)
    config["checkpoints"]["save_steps"] = STEPS
    begun(mortal.folder, config, "by-hand")
    with prefect.worker():
        first = prefect.run_deployment(config)
        kill_at(mortal, "by-hand", 3)
        prefect.wait_for(first, "Crashed")
        prefect.wait_for_worker(first)
        prefect("flow-run", "retry", first)
        wait_for_step(mortal, "by-hand", 6)
        prefect.cancel(first)
        states = prefect.wait_for(first, "Cancelled")
        assert named(states, "Running", "Crashed") == ["Running", "Crashed", "Running"]
        assert_saved(mortal, "by-hand", 6)
        prefect("deployment", "run", "grpo-train/local", "--param", as_parameter(config), "--watch")
    assert_same(mortal.folder, "by-hand", whole)


def test_automations_bring_a_run_back_but_not_for_ever(prefect, mortal, whole, automations):
    """One run is told to go, as on a machine that is taken away, then loses its process and its
    worker at once; beside it one dies whenever it starts.

    The latter's command ends before Prefect starts, so Prefect never counts it as run.
    """
    assert f"grpo-train/local, grpo-train/nightly after {SILENCE_S} s" in automations
    with prefect.worker() as worker:
        config = tiny_config(mortal.folder, "lost", max_steps=STEPS)
        begun(mortal.folder, config, "lost")
        lost = prefect.run_deployment(config)
        dying = prefect.run_deployment(
            tiny_config(mortal.folder, "dying"), "nightly", command="sh -c 'kill -9 $$'"
        )
        kill_at(mortal, "lost", 3, signal.SIGTERM)
        wait_for_step(mortal, "lost", 6)
        worker.kill()
        kill_at(mortal, "lost", 6)
    with prefect.worker():
        states = prefect.wait_for(lost, "Completed")
    assert_same(mortal.folder, "lost", whole)
    back = ["Recovering", "AwaitingRetry", "Running"]
    assert named(states, "Crashed", "Completed", *back) == [
        *("Running", "Crashed", *back),
        *("Crashed", *back, "Completed"),
    ]
    states = prefect.wait_for(dying, "Crashed")
    assert states.count("Pending") == ATTEMPTS
    assert states.count("AwaitingRetry") == ATTEMPTS - 1


def test_a_busy_database_neither_loses_nor_doubles_a_crash(prefect, mortal, automations):
    """A transaction that reads before it writes fails there; Prefect then drops the event, or shows
    it again to automations that have seen it."""
    config = tiny_config(mortal.folder, "nobody-runs-this")
    runs = [prefect.run_deployment(config) for _ in range(6)]
    worn_out, *others = runs
    starts = {worn_out: ATTEMPTS}
    try:
        with writing_to_the_servers_database():
            for run in runs:
                prefect.set_state(run, "PENDING")
                for _ in range(starts.get(run, 1)):
                    prefect.set_state(run, "RUNNING")
                prefect.set_state(run, "CRASHED")
            for run in others:
                states = prefect.wait_for(run, "Recovering", within_s=9)
                assert states == ["Scheduled", "Pending", "Running", "Crashed", "Recovering"]
            assert prefect.states(worn_out)[-2:] == ["Running", "Crashed"]
    finally:
        for run in runs:
            prefect.http.delete(f"/flow_runs/{run}")
