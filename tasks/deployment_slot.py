"""Keeps a flow run's slot in the concurrency limit of its deployment, and does not fail without it.

The server lends a slot for five minutes, and Prefect's engine renews the loan. The engine cancels
the flow if renewing fails for some seconds because the server is away, or once because the server
has given up the run and its slot. But training needs no server, and a run that the server has given
up continues (server_watch.py). So here such failures are waited out or ignored.
"""

from __future__ import annotations

import threading
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient
from prefect.concurrency import _leases
from prefect.context import FlowRunContext
from prefect.exceptions import PrefectHTTPStatusError
from prefect.logging.loggers import get_logger

RETRY_S = 10.0

_prefects_renew = _leases._renew_concurrency_lease_with_retries
_ours: set[UUID] = set()


def keep_slot() -> None:
    """Make Prefect's engine renew this flow run's lease by calling `renew`. The engine has no
    setting for this."""
    context = FlowRunContext.get()
    state = None if context is None or context.flow_run is None else context.flow_run.state
    lease_id = None if state is None else state.state_details.deployment_concurrency_lease_id
    if lease_id is not None:
        _ours.add(lease_id)
        _leases._renew_concurrency_lease_with_retries = renew


def renew(
    client: SyncPrefectClient, lease_id: UUID, lease_duration: float, stop_event: threading.Event
) -> bool:
    """Renew a lease for `lease_duration` seconds; returns False when there is nothing left to
    renew. Other leases than those of our flow runs are renewed as Prefect does it."""
    if lease_id not in _ours:
        return _prefects_renew(client, lease_id, lease_duration, stop_event)
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
