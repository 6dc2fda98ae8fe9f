"""Starts Prefect, its server and its client, while a run is being checked."""

from __future__ import annotations

import contextlib
import importlib
from types import TracebackType

from mortal.server.choice import check_configured_server
from mortal.server.files import Server
from mortal.server.own import BegunServer, begun_server
from mortal.terminal.output import say
from mortal_steps.orchestration.preflight import Beside
from mortal_steps.system.heavy_imports import heavy_imports

FLOW = "mortal_flows.grpo_train"
OF_ITS_START = ("prefect.main", "fastapi.encoders", "mortal.server.api")
"""Modules that Prefect and the command import when the flow begins."""


class PrefectBeside(Beside):
    """The server that a run reports to, for the time of the block; see `prefect_server`.

    Raises `ServerError` at once if the user's own server does not answer.
    """

    def __init__(self, *, port: int, keep: bool) -> None:
        self._port = port
        self._keep = keep
        self._held = contextlib.ExitStack()
        self._configured = check_configured_server()
        self._begun: BegunServer | None = None

    def __enter__(self) -> PrefectBeside:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._held.__exit__(kind, error, trace)

    def begin(self) -> None:
        """Start MORTAL's own server, if it is used and is not running."""
        if self._configured is None and self._begun is None:
            self._begun = self._held.enter_context(
                begun_server(self._port, any_port=False, keep=self._keep, say=say)
            )

    def go_on(self) -> None:
        """Import the flow, and Prefect with it, which takes about as long as the server takes to
        start. Prefect reads its settings then, so the server's address is set before."""
        if self._begun is not None:
            self._begun.name()
        try:
            with heavy_imports():
                for module in (FLOW, *OF_ITS_START):
                    importlib.import_module(module)
        except ValueError as error:  # what pydantic, in Prefect's settings, makes of Ctrl-C
            if KeyboardInterrupt.__name__ in str(error):
                raise KeyboardInterrupt from error
            raise

    def answering(self) -> Server:
        """The server once it answers, with the flow imported."""
        self.begin()
        self.go_on()
        if self._begun is not None:
            return self._begun.answering()
        assert self._configured is not None  # else `begin` has begun one
        return self._configured
