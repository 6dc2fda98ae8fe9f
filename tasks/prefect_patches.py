"""What MORTAL uses and replaces of Prefect's private parts, all of it, and why.

Each entry names the fault that a user meets without it. A test in
`tests/unit/flow/test_prefect_patches.py` fails where a version of Prefect does the same in another
way.
"""

from __future__ import annotations

import threading
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient
from prefect.concurrency import _leases
from prefect.events.worker import EventsWorker
from prefect.exceptions import PrefectHTTPStatusError
from prefect.logging.loggers import get_logger

RETRY_S = 10.0


def keep_slot() -> None:
    """Keep a flow run whose slot in its deployment's concurrency limit cannot be renewed.

    The server lends the slot for five minutes, and Prefect's engine renews the loan. If the server
    is away for longer than three attempts take, or has given the run up, the engine cancels the
    flow: a night would end because its server was updated. The engine has no setting for this. The
    server's part, leases that survive its restart, is a setting.
    """
    _leases._renew_concurrency_lease_with_retries = renew


def renew(
    client: SyncPrefectClient, lease_id: UUID, lease_duration: float, stop_event: threading.Event
) -> bool:
    """Renew a lease for `lease_duration` seconds, however long the server is away. Returns False
    when there is nothing left to renew."""
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


def drop_events() -> None:
    """Drop the events that wait for a server which is gone for good.

    Prefect would try to send each of them for eight seconds before the process may end: an hour for
    the events of a minute. It has no way to stop that.
    """
    EventsWorker.instance()._queue.queue.clear()
