"""A stage of a recipe, as a flow run in a process of its own.

The process ends with the one that drives the recipe, has a main thread of its own for its signals,
and its flow run is a subflow of the recipe's. `StageProcess` is the outside; `main` runs inside.
"""

import asyncio
import contextlib
import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import cloudpickle

from mortal_flows.deployed import VARIABLE
from mortal_steps.errors import MortalError, WorkerLostError
from mortal_steps.system.child import Child
from mortal_steps.system.frames import Answer
from mortal_steps.users_code.loading import import_code

STOPPING = (signal.SIGINT, signal.SIGTERM)
LOOK_EVERY_S = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowCall:
    """The flow run that a stage is."""

    flow: str
    """`module:name` of the flow."""
    parameters: Mapping[str, Any]
    context: Mapping[str, Any]
    """Prefect's, of the flow run that it belongs to, as `serialize_context` gives it."""


class StageProcess:
    """The process of a stage, as the recipe sees it."""

    def __init__(self, call: FlowCall, log: Path, *, deployed: bool) -> None:
        """Begin the stage; what its process prints is added to the file `log`."""
        log.parent.mkdir(parents=True, exist_ok=True)
        reads, writes = os.pipe()
        environment = {**os.environ, **({VARIABLE: "1"} if deployed else {})}
        with log.open("ab") as output, holding_back_signals():
            self._process = Child(
                [sys.executable, "-P", "-m", "mortal_flows.stage_process", str(writes)],
                stdin=subprocess.PIPE,
                output=output,
                pass_fds=(writes,),
                env=environment,
            )
        os.close(writes)
        self._answers = reads
        self._log = log
        assert self._process.stdin is not None
        with self._process.stdin as requests:
            requests.write(cloudpickle.dumps(call))

    def stop(self, number: signal.Signals) -> None:
        """Ask the stage to stop as this signal does."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End the process and what it has started, at once."""
        self._process.kill_all()

    async def ended(self) -> str | None:
        """Wait for its end; return why it was stopped before, or None. Raises the error that the
        stage raised, and `WorkerLostError` where its process died."""
        # Read beside it: a long answer does not fit into the pipe.
        reading = asyncio.ensure_future(asyncio.to_thread(self._read))
        while self._process.poll() is None:
            await asyncio.sleep(LOOK_EVERY_S)
        content = await reading
        if not content:
            raise WorkerLostError(
                f"the process of the stage ended without a word (exit code "
                f"{self._process.returncode}); see {self._log}"
            )
        answer: Answer = pickle.loads(content)
        if answer.error is not None:
            raise answer.error
        stopped: str | None = answer.value
        return stopped

    def _read(self) -> bytes:
        with open(self._answers, "rb") as answers:
            return answers.read()


@contextlib.contextmanager
def holding_back_signals() -> Iterator[None]:
    """Keep signals from a process that is started meanwhile until it asks for them: one that came
    while it imports would end it without an answer."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def main() -> None:
    """Run the flow that the standard input names, and answer how it has ended."""
    answers = int(sys.argv[1])
    os.set_inheritable(answers, False)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        call: FlowCall = pickle.load(sys.stdin.buffer)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        answer = Answer(number=0, value=_run(call))
    except Exception as error:  # noqa: BLE001 - the boundary: all are sent on
        if not isinstance(error, MortalError):
            traceback.print_exc()
        answer = Answer(number=0, error=error)
    except BaseException as error:  # noqa: BLE001 - a signal, and Prefect's word for one
        answer = Answer(number=0, value=str(error) or "it was asked to stop")
    sys.stdout.flush()
    sys.stderr.flush()
    with open(answers, "wb") as out:
        _send(answer, out)


def _run(call: FlowCall) -> str | None:
    """Return why the flow was stopped, None if it has come to its end. Raises what has ended it
    before."""
    from prefect.flow_engine import run_flow

    flow = import_code(call.flow, "the flow of the stage")
    made: Any = run_flow(
        flow=flow,
        parameters=dict(call.parameters),
        context=dict(call.context),
        return_type="state",
    )
    state = asyncio.run(made) if asyncio.iscoroutine(made) else made
    if state.is_failed() and not state.is_crashed():
        raise state.result(raise_on_failure=False)
    if state.is_crashed():
        raise WorkerLostError(state.message or "the flow run has crashed")
    return None if state.is_completed() else state.message or "it was asked to stop"


def _send(answer: Answer, out: IO[bytes]) -> None:
    try:
        content = pickle.dumps(answer)
        pickle.loads(content)
    except Exception:  # noqa: BLE001 - pickling somebody's exception may fail in any way
        assert answer.error is not None
        trace = "".join(traceback.format_exception(answer.error))
        content = pickle.dumps(Answer(number=0, error=RuntimeError(trace)))
    out.write(content)


if __name__ == "__main__":
    main()
