"""Requests to stop a run in order: from a signal, from Prefect's cancellation, or from the flow.

In the process of a deployment's flow run, Prefect handles SIGTERM: its handler distinguishes a
cancellation from a machine that is taken away, so it has to stay in place. That handler raises an
exception wherever the process is at that moment: in the flow's own task, in another task, in the
event loop (which then cancels all tasks, once), or in a callback, where asyncio drops it. Therefore
the event loop listens for the signal as well. After a cancellation, the flow has 30 s to save the
run before the process is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from prefect.exceptions import TerminationSignal

from mortal_steps.errors import ServerError
from mortal_steps.system.hangup import let_go_of_terminals

T = TypeVar("T")

TERMINATED = (asyncio.CancelledError, TerminationSignal)
"""The exceptions by which Prefect's SIGTERM reaches the flow's task; the second if the task was
running at that moment."""


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
        self.terminated: BaseException | None = None
        """What Prefect's SIGTERM raised; it is Prefect's to see once the run is saved."""
        self._overheard = False
        """Whether the loop heard of SIGTERM, and nothing was raised here by it so far."""

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
        except TERMINATED as signalled:
            self.terminate(signalled)
            raise StopRequested from signalled
        finally:
            stopping.cancel()
            if not working.done():
                working.cancel()
                await asyncio.wait({working})
            if self.requested and not working.cancelled():
                working.exception()  # looked at: the stop is what counts

    async def finish(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of the work that `ask` begins; a stop does not interrupt it.

        If SIGTERM interrupts it, `ask` is called again: a worker answers at once for what it has
        already done.
        """
        try:
            return await ask()
        except TERMINATED as signalled:
            self.terminate(signalled)
            return await ask()

    def terminate(self, signalled: BaseException) -> None:
        """Treat a SIGTERM as a request to stop; raises `signalled` if there was a request
        already."""
        if self.requested and not self._overheard:
            raise signalled
        self._overheard = False
        self.terminated = signalled
        self.request("SIGTERM")

    def overhear(self) -> None:
        """Note a SIGTERM as a request to stop. Prefect's handler may raise it where nobody catches
        it."""
        if not self.requested:
            self.terminate(TerminationSignal(signal.SIGTERM))
            self._overheard = True

    @contextlib.contextmanager
    def on_signals(self, say: Callable[[str], None], *, sigterm_raises: bool) -> Iterator[None]:
        """SIGINT, SIGTERM and SIGHUP request the stop; the second of them ends the run at once.

        Where `sigterm_raises`, by a handler that has to stay, it is overheard. A SIGHUP that is
        ignored (`nohup`) stays so.
        """
        if threading.current_thread() is not threading.main_thread():
            yield  # signals are the main thread's; whoever runs the flow here handles them
            return
        loop, flow = asyncio.get_running_loop(), asyncio.current_task()
        before = {number: signal.getsignal(number) for number in SIGNALS}
        if before[signal.SIGHUP] == signal.SIG_IGN or sigterm_raises:
            del before[signal.SIGHUP]

        def heard(number: signal.Signals) -> None:
            if number == signal.SIGHUP:
                let_go_of_terminals()
            if number == signal.SIGTERM and sigterm_raises:
                self.overhear()
            elif self.requested:
                assert flow is not None
                flow.cancel()
            else:
                say(f"{number.name}: saving a checkpoint and stopping; a second one stops at once")
                self.request(number.name)

        for number in before:
            loop.add_signal_handler(number, heard, number)
        if sigterm_raises:
            signal.signal(signal.SIGTERM, before[signal.SIGTERM])  # the loop is still woken up
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # for a moment nobody handles them
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
