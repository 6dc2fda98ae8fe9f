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
from prefect.utilities import engine
from prefect.utilities.engine import capture_sigterm

from mortal_flows.signals import is_taken_away, stop_on_signals
from mortal_flows.stop import Stop, StopRequested
from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.local import LocalCompute
from mortal_steps.errors import RunStoppedError
from mortal_steps.orchestration import driver
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.report.recorder import Recorder
from tests.support import bare
from tests.support.bare_flow import InProcess, bare_in, project_config
from tests.support.workers import TESTS_IMPORTABLE

KEY = "test/0/0"


def run_with_sigterm(flow):
    """What `flow(stop)` returns where SIGTERM comes meanwhile, in the process of a deployment."""

    async def main():
        stop = Stop()
        with stop_on_signals(stop, print, deployed=True):
            return await flow(stop)

    with capture_sigterm():
        outcome = asyncio.run(main())
        assert signal.getsignal(signal.SIGTERM) is engine._prefect_sigterm_handler
    return outcome


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
    assert is_taken_away(stop)


def test_prefect_may_tell_meanwhile_that_the_sigterm_is_a_cancellation():
    """It notes so only while it knows the handler of the signal."""

    async def flow(stop):
        noted = []
        assert engine.commit_control_intent_and_ack(
            lambda: noted.append("cancel"), noted.clear, lambda: None
        )
        return noted

    assert run_with_sigterm(flow) == ["cancel"]


HUNG_UP = """
import asyncio, os, signal, sys
from mortal_steps.system import streams  # before its terminal goes
from mortal_flows.signals import stop_on_signals
from mortal_flows.stop import Stop, StopRequested

async def main():
    stop = Stop()
    with stop_on_signals(stop, lambda text: print(text, flush=True), deployed=False):
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
def test_sigterm_is_heard_wherever_the_event_loop_is(busy):
    def strike():
        os.kill(os.getpid(), signal.SIGTERM)

    async def nobody_waits_for_it():
        strike()
        return "done"

    async def flow(stop):
        if busy == "callback":
            asyncio.get_running_loop().call_later(0.1, strike)
        else:
            forgotten = asyncio.create_task(nobody_waits_for_it())
        with pytest.raises(StopRequested):
            await stop.guard(asyncio.sleep(60))
        assert await asyncio.sleep(0.1, "saved") == "saved"
        assert busy == "callback" or forgotten.result() == "done", "nothing is raised in it"
        return stop.reason

    assert run_with_sigterm(flow) == "SIGTERM"


def test_a_train_step_ends_and_its_worker_stays_in_reach(tmp_path):
    async def flow(stop):
        spec = WorkerSpec(factory="tests.support.workers:Counter", kwargs={}, env=TESTS_IMPORTABLE)
        compute = LocalCompute({"actor": spec}, working_dir=tmp_path.cwd(), log_dir=tmp_path)
        try:
            pid = await compute.call("actor", "pid", key=KEY)
            sigterm_soon()
            await compute.call("actor", "sleep", key=KEY, seconds=0.5)
            assert stop.requested
            assert await compute.call("actor", "pid", key=KEY) == pid
        finally:
            await compute.close()
        with pytest.raises(StopRequested):
            await stop.guard(asyncio.sleep(60))

    run_with_sigterm(flow)


def test_a_second_request_ends_the_run_at_once():
    async def flow(stop):
        stop.request("SIGINT")
        sigterm_soon()
        await asyncio.sleep(60)

    with pytest.raises(asyncio.CancelledError):
        run_with_sigterm(flow)


def test_between_two_stages_the_run_is_saved_too(tmp_path):
    class Interrupted(Recorder):
        def step(self, problems, batch, result):
            if result.step == 2:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().step(problems, batch, result)

    with bare_in(tmp_path):
        run = open_run(project_config(tmp_path, **{"checkpoints.save_steps": 6}))

        async def flow(stop):
            async with driver.open_session(run, local=InProcess) as session:
                await bare.train(session, Interrupted(run), stop)

        with pytest.raises(RunStoppedError, match="stopped by SIGTERM after 3 of 6 steps, state"):
            run_with_sigterm(flow)
    assert run.manifest.status == "stopped"
    assert [saved.step for saved in run.manifest.checkpoints] == [3]
    assert (tmp_path / "runs" / "run" / "reward_curve.png").exists()
    assert run.manifest.step == 3
