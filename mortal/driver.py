"""Drives one run from the command line: check it, start a server, run the flow, print the
result."""

import asyncio
import contextlib
import importlib
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from mortal.server.files import (
    Server,
    ServerRecord,
    client_environment,
    living_server,
    out_of_room,
    state_dir,
)
from mortal.server.local_server import answering, begun_server
from mortal.server.select_server import check_configured_server
from mortal.terminal.display import show_outcome
from mortal.terminal.output import (
    checking,
    losing_what_cannot_be_printed,
    say,
    tell,
)
from mortal_steps.errors import ServerError
from mortal_steps.orchestration.batch_sources.base import has_samplers
from mortal_steps.orchestration.checking.forecast_lines import placement_in_words
from mortal_steps.orchestration.checking.preflight import ParallelStartup, begin_workers_imports
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.places.base import place_of
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.report.log_repair import mend_complete
from mortal_steps.report.progress import terminal
from mortal_steps.report.summary import summarize
from mortal_steps.runs.argument import run_argument
from mortal_steps.runs.lease import is_driven, refuse_if_driven
from mortal_steps.runs.recipe_of import resume_argument
from mortal_steps.runs.run import Run, find_run
from mortal_steps.store import RunStore
from mortal_steps.system.imports import imports_without_gc

QUIET_PREFECT = {
    # Task runs have the UI and the progress line; two log records each would drown both.
    "PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL": "WARNING",
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}
EVENTS_TIMEOUT_S = 20.0
"""The longest wait for events on their way to the server: somebody waits for the process to end."""
FLOW = "mortal_flows.grpo_train"
OF_ITS_START = ("prefect.main", "fastapi.encoders", "mortal.server.api")
"""Modules that Prefect and the command import when the flow begins."""
PRINTED_ANYWAY = (
    # The error that ends the run, with its traceback; twice.
    "Encountered exception during execution",
    "Finished in state Failed('Flow run encountered",
)
"""How the lines of Prefect begin that the terminal does not show; the Prefect UI has them."""


def drive(config: RunConfig) -> None:
    """Run `config` to its end and print the result. Raises the `MortalError` that ended the run
    early. Quick checks come first; Prefect is started beside the slow ones. Raises `StoreError` at
    once if another process drives the run."""
    for name, value in QUIET_PREFECT.items():
        os.environ.setdefault(name, value)
    if sys.stderr.isatty():  # where the live bar shows the same
        os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "WARNING")
    refuse_if_driven(RunStore(Path(config.runs_dir) / str(config.run_id)))
    driven: Run | None = None
    began = time.monotonic()
    try:
        with PrefectStart() as prefect:
            run = open_run(config, checking, prefect, tell=tell)
            if run.is_complete():
                mend_complete(run)
                named = run_argument(run.store.root)
                say(f"run {run.info.run_id} is complete; see `mortal show {named}`")
                return
            begin_workers_imports(run.plan, run.info.rounding)
            began = time.monotonic()
            say(f"run {run.info.run_id} in {run.store.root}")
            samples = has_samplers(run.plan.workers)
            if (found := place_of(run.plan.place).placement(samples=samples)).gpus:
                say(f"placement: {placement_in_words(found)}")
            checking("waiting for the Prefect server")
            server = prefect.answering()
            say(f"Prefect UI: {server.ui_url}")
            driven = run
            _run_flow(run, server)
    finally:
        # Another process's run is not ours to tell of.
        if driven and not is_driven(driven.store):
            _report(find_run(Path(config.runs_dir), driven.info.run_id), time.monotonic() - began)


def _run_flow(opened: Run, server: Server) -> None:
    """Run the flow with the open run, here; flush its events, then raise what ended it."""
    # Prefect reads its settings when it is imported.
    from prefect.exceptions import ObjectNotFound

    from mortal_flows import grpo_train as flows
    from mortal_tasks.server_watch import is_unreached

    flows.opened[:] = [opened]
    began = time.time()
    try:
        state = run_to_state(flows.grpo_train, config=opened.config)
    except httpx.HTTPError as error:  # Prefect could not tell the server how the run ended
        raise _lost(server, opened, began, error) from error
    except ObjectNotFound as error:  # somebody has deleted the flow run, or the server's database
        opened.read_again()
        if not opened.is_complete():
            raise _lost(server, opened, began, error) from error
        return
    except RuntimeError as error:  # Prefect's word for a server that is away when the flow starts
        if not is_unreached(error):
            raise
        raise _lost(server, opened, began, error) from error
    if state.is_cancelled() or state.is_crashed():
        raise KeyboardInterrupt  # it was asked to stop, which Prefect keeps to itself
    try:
        state.result()
    except httpx.HTTPError as error:  # it was away when the run needed it, at its beginning
        raise _lost(server, opened, began, error) from error


def run_to_state(flow: Callable[..., Any], **parameters: Any) -> Any:
    """Run a flow, and return the state of Prefect's in which it ends, with its logs and events sent
    off. Raises `KeyboardInterrupt` where it was told twice to stop, and did so at once."""
    # Prefect reads its settings when it is imported.
    from prefect.logging.handlers import APILogHandler

    from mortal_tasks.prefect_patches import drop_events

    async def to_its_state() -> Any:
        return await flow(**parameters, return_state=True)

    _calm_console()
    try:
        return asyncio.run(to_its_state())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        APILogHandler().flush()  # while the server is there to take them
        drop_events(after_s=EVENTS_TIMEOUT_S)


def _calm_console() -> None:
    """Leave out what `mortal` prints anyway; keep Prefect's other lines above the progress bar."""
    from prefect.logging.handlers import PrefectConsoleHandler

    from mortal_flows.terminal import outlive_its_reader

    for handler in logging.getLogger().handlers:
        if isinstance(handler, PrefectConsoleHandler):
            handler.addFilter(is_news)
            if sys.stderr.isatty():
                handler.console = terminal()
            outlive_its_reader(handler.console)


def is_news(record: logging.LogRecord) -> bool:
    """Return whether `mortal` does not print the same anyway."""
    message = record.getMessage()
    if record.name == "prefect.engine" and message.startswith("View at "):
        return False  # the flow run's own logger gives the same address
    return not message.startswith(PRINTED_ANYWAY)


def _lost(server: Server, run: Run, began: float, error: Exception) -> ServerError:
    """Return the error for a lost server, or the run's own reason if it has noted one since."""
    run.read_again()
    ended, run_id = run.manifest, run.info.run_id
    if ended.error and ended.updated_at >= began:
        return ServerError(ended.error)
    room = _room(server)
    of_server = f"the Prefect server at {server.api_url}"
    reason = "" if room else f" ({error})"
    if run.is_complete():
        return ServerError(
            f"run {run_id} has completed: `mortal show {run_argument(run.store.root)}`. But "
            f"{of_server} "
            f"could not be told{reason}, and may show it as running{room}"
        )
    return ServerError(
        f"{of_server} went away{reason}; once it is back, continue with `mortal resume "
        f"{resume_argument(run.store.root)}`{room}"
    )


def _room(server: Server) -> str:
    """Return the end of an error message, if this is a server of ours and its disk is full."""
    home = state_dir() / "prefect"
    own = living_server(home)
    return out_of_room(home) if own is not None and own.api_url == server.api_url else ""


def _report(run: Run, seconds: float) -> None:
    summary = summarize(run)
    with losing_what_cannot_be_printed():
        show_outcome(summary, seconds)


class PrefectStart(ParallelStartup, contextlib.ExitStack):
    """Starts Prefect, its server and its client beside a run's checks; the server stays for the
    block. Raises `ServerError` at once if the user's own server does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self._configured = check_configured_server()
        self._own: ServerRecord | None = None

    def begin(self) -> None:
        """Start MORTAL's own server, if it is used and is not running."""
        if self._configured is None and self._own is None:
            self._own = self.enter_context(begun_server((0,), say))

    def go_on(self) -> None:
        """Import the flow, and Prefect with it, which takes about as long as the server takes to
        start. Prefect reads its settings then, so the server's address is set before."""
        if self._own is not None:
            os.environ.update(client_environment(self._own))
        try:
            with imports_without_gc():
                for module in (FLOW, *OF_ITS_START):
                    importlib.import_module(module)
        except ValueError as error:  # what pydantic, in Prefect's settings, makes of Ctrl-C
            if KeyboardInterrupt.__name__ in str(error):
                raise KeyboardInterrupt from error
            raise

    def answering(self) -> Server:
        """Return the server once it answers, with the flow imported."""
        self.begin()
        self.go_on()
        if self._own is not None:
            self.enter_context(answering(self._own, say))
        server = self._configured or self._own
        assert server is not None  # `begin` has seen to it
        return server
