"""A stop in order by SIGTERM, as it comes to the process of a deployment's run."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from termios import TIOCSCTTY

import pytest
from prefect.exceptions import TerminationSignal
from prefect.utilities.engine import _prefect_sigterm_handler, capture_sigterm

from mortal_flows.stop import TERMINATED, Stop, StopRequested
from mortal_steps.compute.base import CallKey, WorkerSpec
from mortal_steps.compute.local import LocalCompute
from mortal_steps.errors import RunStoppedError
from mortal_steps.orchestration import driver
from mortal_steps.orchestration.opening import open_run
from mortal_steps.report.recorder import Recorder
from tests.support import bare
from tests.support.bare_flow import InProcess, bare_in, project_config
from tests.support.workers import TESTS_IMPORTABLE

KEY = CallKey(run_id="test", stage="test", step=0)


def run_with_sigterm(flow):
    """What `flow(stop)` returns where SIGTERM comes meanwhile, under Prefect's handler."""
    outcome = []

    async def main():
        stop = Stop()
        outcome.append(await flow(stop))
        if stop.terminated is not None:
            raise stop.terminated

    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what Prefect hands the signal on to
    try:
        with pytest.raises(TerminationSignal), capture_sigterm():
            asyncio.run(main())
    finally:
        signal.signal(signal.SIGTERM, before)
    return outcome[0]


def sigterm_soon():
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()


def test_what_is_waited_for_is_dropped():
    async def flow(stop):
        sigterm_soon()
        with pytest.raises(StopRequested):
            await stop.guard(asyncio.sleep(60))
        return stop

    stop = run_with_sigterm(flow)
    assert stop.reason == "SIGTERM"
    assert isinstance(stop.terminated, TERMINATED)


HUNG_UP = """
import asyncio, os, signal, sys
from mortal_steps.system import hangup  # before its terminal goes
from mortal_flows.stop import Stop, StopRequested

async def main():
    stop = Stop()
    with stop.on_signals(lambda text: print(text, flush=True), sigterm_raises=False):
        print("ready", flush=True)
        try:
            await stop.guard(asyncio.sleep(600))
        except StopRequested:
            print("saving", flush=True)  # to a terminal that is gone
            open(sys.argv[1], "w").write(stop.reason)

asyncio.run(main())
"""


@pytest.mark.parametrize("ignored", [False, True])
def test_a_run_whose_terminal_goes_away_is_saved(tmp_path, ignored):
    """And one that `nohup` keeps from hearing of it goes on."""
    terminal, theirs = os.openpty()
    action = signal.SIG_IGN if ignored else signal.SIG_DFL
    with subprocess.Popen(
        [sys.executable, "-c", HUNG_UP, str(tmp_path / "saved")],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: (signal.signal(signal.SIGHUP, action), fcntl.ioctl(0, TIOCSCTTY, 0)),
    ) as run:
        os.close(theirs)
        said = b""
        while b"ready\r\n" not in said:
            said += os.read(terminal, 100)
        time.sleep(0.5)  # what has been read may still be in the call that writes it
        os.close(terminal)
        if ignored:
            with pytest.raises(subprocess.TimeoutExpired):
                run.wait(1)
            run.kill()
        else:
            assert run.wait(60) == 0
            assert (tmp_path / "saved").read_text() == "SIGHUP"


@pytest.mark.parametrize("busy", ["callback", "task"])
def test_sigterm_is_heard_where_asyncio_drops_what_it_raises(busy):
    def strike():
        os.kill(os.getpid(), signal.SIGTERM)

    async def nobody_waits_for_it():
        strike()

    async def flow(stop):
        with stop.on_signals(print, sigterm_raises=True):
            if busy == "callback":
                asyncio.get_running_loop().call_later(0.1, strike)
            else:
                forgotten = asyncio.create_task(nobody_waits_for_it())
            with pytest.raises(StopRequested):
                await stop.guard(asyncio.sleep(60))
            assert await stop.finish(lambda: asyncio.sleep(0.1, "saved")) == "saved"
        assert busy == "callback" or isinstance(forgotten.exception(), TerminationSignal)
        assert stop.reason == "SIGTERM"
        return signal.getsignal(signal.SIGTERM)

    assert run_with_sigterm(flow) is _prefect_sigterm_handler


def test_one_sigterm_counts_once_whoever_hears_of_it_first():
    async def flow(stop):
        stop.overhear()
        signalled = TerminationSignal(signal.SIGTERM)
        stop.terminate(signalled)
        stop.overhear()
        assert stop.terminated is signalled
        with pytest.raises(TerminationSignal):
            stop.terminate(TerminationSignal(signal.SIGTERM))

    asyncio.run(flow(Stop()))


def test_a_train_step_ends_and_its_worker_stays_in_reach(tmp_path):
    """All tasks of the loop are cancelled, once; the worker is asked again and answers."""

    async def flow(stop):
        spec = WorkerSpec(factory="tests.support.workers:Counter", kwargs={}, env=TESTS_IMPORTABLE)
        compute = LocalCompute({"actor": spec}, working_dir=tmp_path.cwd(), log_dir=tmp_path)
        asked = []

        def ask():
            asked.append("again" if asked else "first")
            return compute.call("actor", "sleep", key=KEY, seconds=0.5)

        try:
            pid = await compute.call("actor", "pid", key=KEY)
            sigterm_soon()
            await stop.finish(ask)
            assert await compute.call("actor", "pid", key=KEY) == pid
        finally:
            await compute.close()
        with pytest.raises(StopRequested):
            await stop.guard(asyncio.sleep(60))
        return asked

    assert run_with_sigterm(flow) == ["first", "again"]


def test_a_second_request_ends_the_run_at_once():
    async def flow(stop):
        stop.request("SIGINT")
        sigterm_soon()
        with pytest.raises(TERMINATED):
            await stop.finish(lambda: asyncio.sleep(60))
        return stop.terminated

    assert run_with_sigterm(flow) is None


def test_between_two_stages_the_run_is_saved_too(tmp_path):
    class Interrupted(Recorder):
        def step(self, batch, rewards, result):
            if result.step == 2:
                raise TerminationSignal(signal.SIGTERM)
            return super().step(batch, rewards, result)

    async def drive(run):
        async with driver.open_session(run, local=InProcess) as session:
            await bare.train(session, Interrupted(run))

    with bare_in(tmp_path):
        run = open_run(project_config(tmp_path, **{"checkpoints.save_steps": 6}))
        with pytest.raises(RunStoppedError, match="stopped by SIGTERM after 3 of 6 steps, state"):
            asyncio.run(drive(run))
    assert run.manifest.status == "stopped"
    assert [saved.step for saved in run.manifest.checkpoints] == [3]
    assert (tmp_path / "runs" / "run" / "reward_curve.png").exists()
    assert run.manifest.step == 2, "the third step is noted by whoever goes on"
