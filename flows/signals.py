"""Signals that stop a run in order, although Prefect has handlers of its own.

In the process of a deployment's flow run, Prefect answers SIGTERM by an exception, which is raised
wherever the process is at that moment. Here the event loop listens for the signal instead, and the
flow asks Prefect at its end whether the signal was a cancellation, or a machine that is taken away.
After a cancellation, the flow has 30 s to save the run before the process is killed.
"""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

from mortal_flows.stop import Stop
from mortal_steps.system.streams import let_go_of_terminals
from mortal_tasks.prefect_patches import sigterm_is_ours, was_cancelled

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
