"""Requests to stop a run in order, whoever makes them: a signal, Prefect, or the loop itself."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from mortal_steps.errors import ServerError
from mortal_steps.system.streams import let_go_of_terminals
from mortal_tasks.prefect_patches import sigterm_is_ours, was_cancelled

T = TypeVar("T")


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
        return self._event.is_set()

    def request(self, reason: str, error: ServerError | None = None) -> None:
        """Ask the run to stop; the first reason given is the one reported."""
        if not self.requested:
            self.reason, self.error = reason, error
            self._event.set()

    async def guard(self, work: Awaitable[T]) -> T:
        """Return the result of `work`. If the stop comes first, `work` is cancelled and
        `StopRequested` is raised."""
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


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def is_taken_away(stop: Stop) -> bool:
    """Tell whether SIGTERM has stopped the run, and it was no cancellation of Prefect's."""
    return stop.reason == signal.SIGTERM.name and not was_cancelled()


@contextlib.contextmanager
def stop_on_signals(stop: Stop, say: Callable[[str], None], *, deployed: bool) -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP request the stop; the second one ends the run at once. An
    ignored SIGHUP (`nohup`) stays so, and that of a deployment's process is not ours."""
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
        if stop.requested:
            assert flow is not None
            flow.cancel()
        else:
            say(f"{number.name}: saving a checkpoint and stopping; a second one stops at once")
            stop.request(number.name)

    for number in before:
        loop.add_signal_handler(number, heard, number)
    try:
        with sigterm_is_ours():
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # for a moment nobody handles them
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
