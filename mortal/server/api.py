"""What mortal asks a Prefect server, through Prefect's own client.

So it goes to whatever server Prefect's settings can reach: one with a password, with protection
against forged requests, behind a proxy or TLS, or Prefect Cloud. Prefect reads its settings when it
is imported, which this does: import it once the environment says which server it is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from mortal.server.files import Server
from mortal_steps.errors import ServerError

ANSWER_TIMEOUT_S = 20.0
HISTORY_TIMEOUT_S = 20.0
"""Somebody waits for the process to end."""
HISTORY_QUIET_S = 1.2
REFUSED = (401, 403)


@contextlib.contextmanager
def client_of(api_url: str) -> Iterator[SyncPrefectClient]:
    """Prefect's client for one server, which asks once."""
    once = {PREFECT_API_URL: api_url, PREFECT_CLIENT_MAX_RETRIES: 0}
    with (
        temporary_settings(once),
        get_client({"timeout": ANSWER_TIMEOUT_S}, sync_client=True) as client,
    ):
        yield client


def answers(api_url: str) -> bool:
    """Whether a Prefect server is healthy."""
    with client_of(api_url) as client:
        return client.api_healthcheck() is None


def check_serves(api_url: str) -> None:
    """Raise the `ServerError` that says why a server does not serve this user, if so."""
    with client_of(api_url) as client:
        try:
            client.request("POST", "/flows/count", json={})
        except httpx.HTTPStatusError as error:
            raise _refused(api_url, error) from error
        except httpx.HTTPError as error:
            raise ServerError(
                f"PREFECT_API_URL = {api_url} does not answer ({error}); start that server, or "
                "unset the variable, and MORTAL starts a server of its own"
            ) from error


def wait_for_history(server: Server, flow_run_id: UUID) -> int | None:
    """Wait until the server hears nothing new of a flow run; how many task runs are unfinished.

    None: the server has not answered.

    Task runs reach the database a while after they end; a server stopped at once would lose the
    last ones. A run that completes waits for its own itself (`ServerWatch.written_down`). One that
    is stopped or fails cannot: its process ends at once where a deployment made it, and the task
    runs that it has cancelled may be told of by nobody. So this waits until their number stays the
    same for a while, and not for long.
    """
    deadline = time.monotonic() + HISTORY_TIMEOUT_S
    counts: list[int] = []
    since = time.monotonic()
    with client_of(server.api_url) as client:
        while time.monotonic() < deadline:
            try:
                found = [
                    _count_task_runs(client, flow_run_id, unfinished=unfinished)
                    for unfinished in (False, True)
                ]
            except httpx.HTTPError as error:
                if isinstance(error, httpx.HTTPStatusError) and _is_refusal(error):
                    raise _refused(server.api_url, error) from error
                time.sleep(1)  # it may come back before the time is over
                continue
            if found != counts:
                counts, since = found, time.monotonic()
            elif time.monotonic() - since > HISTORY_QUIET_S:
                break
            time.sleep(0.2)
    return counts[1] if counts else None


def _count_task_runs(client: SyncPrefectClient, flow_run_id: UUID, *, unfinished: bool) -> int:
    own = {"any_": [str(flow_run_id)]}
    wanted: dict[str, Any] = {  # its own, and those of its segments
        "flow_runs": {"operator": "or_", "id": own, "parent_flow_run_id": own}
    }
    if unfinished:
        wanted["task_runs"] = {
            "state": {"type": {"any_": ["PENDING", "RUNNING", "SCHEDULED"]}},
            "subflow_runs": {"exists_": False},  # a segment's end is told at once, or not at all
        }
    return int(client.request("POST", "/task_runs/count", json=wanted).json())


def _is_refusal(error: httpx.HTTPStatusError) -> bool:
    return error.response.status_code in REFUSED


def _refused(api_url: str, error: httpx.HTTPStatusError) -> ServerError:
    code = error.response.status_code
    if _is_refusal(error):
        return ServerError(
            f"PREFECT_API_URL = {api_url} refuses this user (status {code}); set "
            "PREFECT_API_AUTH_STRING to the server's PREFECT_SERVER_API_AUTH_STRING, or "
            "PREFECT_API_KEY for Prefect Cloud"
        )
    return ServerError(
        f"PREFECT_API_URL = {api_url} is not the address of a Prefect API (status {code}); such an "
        "address ends in /api, as in http://127.0.0.1:4200/api"
    )
