"""All that MORTAL uses and replaces of Prefect's private parts, each for a fault that a user meets.

Each function names its fault, and the issue at https://github.com/PrefectHQ/prefect/issues, or a
draft of one. `tests/unit/flow/test_prefect_patches.py` and `tests/e2e/test_serving.py` fail where a
version of Prefect does the same in another way.
"""

import contextlib
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import Any
from uuid import UUID

import httpx
from prefect import task_engine
from prefect._internal import control_listener
from prefect.client.orchestration import SyncPrefectClient
from prefect.concurrency import _leases
from prefect.events.worker import EventsWorker
from prefect.exceptions import PrefectHTTPStatusError
from prefect.logging.loggers import get_logger
from prefect.utilities import engine

RETRY_S = 10.0
unshown: ContextVar[bool] = ContextVar("unshown", default=False)
"""Whether the server is to hear nothing of the task runs of this context."""


def keep_slot() -> None:
    """Keep a flow run alive whose slot in its deployment's concurrency limit cannot be renewed.

    The server lends the slot for five minutes, and Prefect's engine renews the loan. If the server
    is away for longer than three attempts take, or has given the run up, the engine cancels the
    flow: a night ends because its server was updated. Issues 18839 and 21064 (the three attempts
    are its remedy); still wanted is a setting for what a failure does.
    """
    _leases._renew_concurrency_lease_with_retries = renew


def renew(
    client: SyncPrefectClient, lease_id: UUID, lease_duration: float, stop_event: threading.Event
) -> bool:
    """Renew a lease however long the server is away; False when nothing is left."""
    while not stop_event.is_set():
        try:
            client.renew_concurrency_lease(lease_id=lease_id, lease_duration=lease_duration)
            return True
        except PrefectHTTPStatusError as error:
            if error.response.status_code == httpx.codes.GONE:
                get_logger("concurrency").warning(
                    "the server has given up this run's place among those of its deployment; "
                    "the next one may begin beside it"
                )
                return False
        except httpx.HTTPError:
            pass  # the server is away, which server_watch.py says
        stop_event.wait(RETRY_S)
    return False


def drop_events(after_s: float = 0.0) -> None:
    """Drop the events that the server has not taken in this time, because it is away.

    At the end of the process Prefect tries each of them for eight seconds, so a run whose server is
    lost would not end for an hour. Draft: "The process hangs at exit while the API is unreachable:
    `EventsWorker.drain` should take a time limit".
    """
    worker = EventsWorker.instance()
    if after_s:
        EventsWorker.drain_all(timeout=after_s)
    worker._queue.queue.clear()
    if after_s:
        worker._queue.put_nowait(None)  # the mark of the end, which was dropped with the events


def hide_unshown() -> None:
    """Send the server nothing of task runs in a context that is `unshown`.

    While the server is away, a run has no segment to show its stages in. Prefect keeps the events
    of these task runs, and sends all when the server is back: hundreds of bars and dots then hide
    the page of the run. Draft: "A task whose runs are not sent to the API".
    """
    task_engine.emit_task_run_state_change_event = _emit_if_shown  # type: ignore[attr-defined]


def _emit_if_shown(*args: Any, **kwargs: Any) -> Any:
    emit = engine.emit_task_run_state_change_event
    return None if unshown.get() else emit(*args, **kwargs)


@contextlib.contextmanager
def sigterm_is_ours() -> Iterator[None]:
    """Let Prefect note a cancellation although another handler of SIGTERM is installed; the block
    begins once it is.

    In the process of a deployment's flow run, Prefect answers SIGTERM by an exception, raised
    wherever the process is: in the middle of a step, whose state is then lost. While a run trains,
    the event loop hears the signal instead. But Prefect's runner tells the process of a
    cancellation only while Prefect knows the signal's handler. Draft: "Allow async flows to handle
    SIGTERM in their event loop".
    """
    prefects = engine._prefect_sigterm_handler
    engine._prefect_sigterm_handler = signal.getsignal(signal.SIGTERM)  # type: ignore[assignment]
    try:
        yield
    finally:
        engine._prefect_sigterm_handler = prefects


def was_cancelled() -> bool:
    """Tell whether Prefect's runner has told this process that SIGTERM is a cancellation."""
    return control_listener.get_intent() == "cancel"


def poll_by(runner: Any, look: Callable[[Callable[[], Awaitable[Any]]], Awaitable[None]]) -> None:
    """Let a `Runner` that is entered call `look` when it looks for due runs; `look` is given what
    Prefect does then.

    Prefect's runner ends for good when it has asked an absent server three times, so a nightly
    schedule ends with its server's update. Draft, like issue 22638 about workers: "`flow.serve`
    exits when the API is unreachable for a minute".
    """
    poller = runner._scheduled_run_poller
    prefects = poller._get_and_submit_flow_runs

    async def polled() -> None:
        await look(prefects)

    poller._get_and_submit_flow_runs = polled
