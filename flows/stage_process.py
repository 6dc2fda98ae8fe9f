"""A stage of a recipe, as a flow run in a process of its own.

The process ends with the one that drives the recipe, has a main thread of its own for its signals,
and its flow run is a subflow of the recipe's. `StageProcess` is the outside; `main` runs inside.
"""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle

from mortal_flows.deployed import VARIABLE
from mortal_steps.errors import WorkerLostError
from mortal_steps.system.asked import AskedProcess, answer_once
from mortal_steps.users_code.loading import import_code

logger = logging.getLogger(__name__)

STOPPED = "it was asked to stop"
LOOK_EVERY_S = 0.1
ASK_EVERY_S = 1.0


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
        environment = {**os.environ, **({VARIABLE: "1"} if deployed else {})}
        with log.open("ab") as output:
            self._process = AskedProcess(__name__, env=environment, output=output)
        self._log = log
        self._process.ask(cloudpickle.dumps(call))

    def stop(self, number: signal.Signals) -> None:
        """Ask the stage to stop as this signal does."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End the process and what it has started, at once."""
        self._process.kill_all()

    async def ended(self) -> str | None:
        """Wait for its end; return why it was stopped before, or None. Raises the error that the
        stage raised, and `WorkerLostError` where its process died."""
        while self._process.poll() is None:
            await asyncio.sleep(LOOK_EVERY_S)
        answer = self._process.answer()
        if answer is None:
            raise WorkerLostError(
                f"the process of the stage ended without a word (exit code "
                f"{self._process.returncode}); see {self._log}"
            )
        if isinstance(answer.error, KeyboardInterrupt):
            return STOPPED
        if answer.error is not None:
            raise answer.error
        stopped: str | None = answer.value
        return stopped


def main() -> None:
    """Run the flow that is asked for, and answer why it was stopped, if it was."""
    answer_once(_run)


def _run(call: FlowCall) -> str | None:
    """Return why the flow was stopped, None if it has come to its end. Raises what has ended it
    before."""
    from prefect.exceptions import TerminationSignal
    from prefect.flow_engine import run_flow

    flow = import_code(call.flow, "the flow of the stage")

    def run() -> Any:
        made: Any = run_flow(
            flow=flow,
            parameters=dict(call.parameters),
            context=dict(call.context),
            return_type="state",
        )
        return asyncio.run(made) if asyncio.iscoroutine(made) else made

    try:
        state = _once_the_server_answers(run)
    except (TerminationSignal, asyncio.CancelledError) as stopped:
        return str(stopped) or STOPPED
    if state.is_failed():
        raise state.result(raise_on_failure=False)
    if state.is_crashed():
        raise WorkerLostError(state.message or "the flow run has crashed")
    return None if state.is_completed() else state.message or STOPPED


def _once_the_server_answers(run: Callable[[], Any]) -> Any:
    """Return what `run` returns. A server that went away just now, which the recipe has not noticed
    yet, is waited for: the recipe stops this process if it stays away for too long."""
    from mortal_tasks.server_watch import is_unreached

    while True:
        try:
            return run()
        except RuntimeError as error:  # Prefect's, before the flow run begins
            if not is_unreached(error):
                raise
            logger.warning("waits for the server: %s", error)
        time.sleep(ASK_EVERY_S)


if __name__ == "__main__":
    main()
