"""Requests to stop a run in order: from a signal, from Prefect's cancellation, or from the flow.

In the process of a deployment's flow run, Prefect answers SIGTERM by an exception, which is raised
wherever the process is at that moment. Here the event loop listens for the signal instead, and the
flow asks Prefect at its end whether the signal was a cancellation, or a machine that is taken away.
After a cancellation, the flow has 30 s to save the run before the process is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from prefect._internal.control_listener import get_intent
from prefect.utilities import engine

from mortal_steps.errors import ServerError
from mortal_steps.system.hangup import let_go_of_terminals

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequested(Exception):
    """Raised by `Stop.guard` when the stop comes before the result that it waits for."""


class Stop:
    """Whether the run stops before its last step, and for which reason."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.reason = ""
        """Such as `SIGINT`."""
        self.error: ServerError | None = None
        """What forces the run to stop; None where somebody asked for it."""

    @property
    def requested(self) -> bool:
        """Whether the run should stop."""
        return self._event.is_set()

    def request(self, reason: str, error: ServerError | None = None) -> None:
        """Ask the run to stop; the first reason given is the one reported."""
        if not self.requested:
            self.reason, self.error = reason, error
            self._event.set()

    async def guard(self, work: Awaitable[T]) -> T:
        """The result of `work`. If the stop comes first, `work` is cancelled and `StopRequested` is
        raised."""
        working = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._event.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if self.requested:
                raise StopRequested
            return working.result()
        finally:
            stopping.cancel()
            if not working.done():
                working.cancel()
                await asyncio.wait({working})
            if self.requested and not working.cancelled():
                working.exception()  # looked at: the stop is what counts

    @property
    def taken_away(self) -> bool:
        """Whether SIGTERM has stopped the run, and it was no cancellation of Prefect's."""
        return self.reason == signal.SIGTERM.name and get_intent() != "cancel"

    @contextlib.contextmanager
    def on_signals(self, say: Callable[[str], None], *, deployed: bool) -> Iterator[None]:
        """SIGINT, SIGTERM and SIGHUP request the stop; the second of them ends the run at once.

        A SIGHUP that is ignored (`nohup`) stays so, and that of a deployment's process is not ours.
        """
        if threading.current_thread() is not threading.main_thread():
            yield  # signals are the main thread's; whoever runs the flow here handles them
            return
        loop, flow = asyncio.get_running_loop(), asyncio.current_task()
        before = {number: signal.getsignal(number) for number in SIGNALS}
        if before[signal.SIGHUP] == signal.SIG_IGN or deployed:
            del before[signal.SIGHUP]

        def heard(number: signal.Signals) -> None:
            if number == signal.SIGHUP:
                let_go_of_terminals()
            if self.requested:
                assert flow is not None
                flow.cancel()
            else:
                say(f"{number.name}: saving a checkpoint and stopping; a second one stops at once")
                self.request(number.name)

        prefects = engine._prefect_sigterm_handler
        # Prefect notes a cancellation only while it knows who handles SIGTERM.
        with engine._prefect_sigterm_bridge_lock:
            for number in before:
                loop.add_signal_handler(number, heard, number)
            engine._prefect_sigterm_handler = signal.getsignal(signal.SIGTERM)  # type: ignore[assignment]
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # for a moment nobody handles them
            with engine._prefect_sigterm_bridge_lock:
                for number, handler in before.items():
                    loop.remove_signal_handler(number)
                    signal.signal(number, handler)
                engine._prefect_sigterm_handler = prefects
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
