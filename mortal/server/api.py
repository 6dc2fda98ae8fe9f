"""Requests to a Prefect server, through Prefect's own client.

They therefore reach any server that Prefect's settings can reach: one with a password, with
protection against forged requests, behind a proxy or TLS, or Prefect Cloud. This module imports
Prefect, which reads its settings when it is imported. So import it only after the environment says
which server to use.
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
"""The longest wait for a run's history. It is short because somebody waits for the process to
end."""
HISTORY_QUIET_S = 1.2
"""Seconds without a change after which a run's history counts as complete."""
REFUSED = (401, 403)
"""HTTP status codes by which a server refuses a user."""


@contextlib.contextmanager
def client_of(api_url: str) -> Iterator[SyncPrefectClient]:
    """Prefect's client for one server, without retries."""
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
    """Raise `ServerError`, with the remedy, if a server does not answer or refuses this user."""
    with client_of(api_url) as client:
        try:
            client.request("POST", "/flows/count", json={})
        except httpx.HTTPStatusError as error:
            raise _refused(api_url, error) from error
        except httpx.HTTPError as error:
            raise ServerError(
                f"PREFECT_API_URL = {api_url} does not answer ({error}); start that server, or "
                "unset the variable to let MORTAL start a server of its own"
            ) from error


def wait_for_history(server: Server, flow_run_id: UUID) -> int | None:
    """Wait until the server has recorded a flow run's task runs. Returns how many of them are
    unfinished, or None if the server has not answered.

    Task runs reach the database some time after they end, so a server that is stopped at once would
    lose the last ones. A run that completes waits for its own task runs
    (`ServerWatch.written_down`). A run that is stopped or fails cannot: if a deployment made it,
    its process ends at once, and nobody may report the task runs that it has cancelled. This
    function therefore waits until their number has not changed for `HISTORY_QUIET_S` seconds, and
    for `HISTORY_TIMEOUT_S` seconds at most. Raises `ServerError` if the server refuses this user.
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
                time.sleep(1)  # the server may come back in time
                continue
            if found != counts:
                counts, since = found, time.monotonic()
            elif time.monotonic() - since > HISTORY_QUIET_S:
                break
            time.sleep(0.2)
    return counts[1] if counts else None


def _count_task_runs(client: SyncPrefectClient, flow_run_id: UUID, *, unfinished: bool) -> int:
    own = {"any_": [str(flow_run_id)]}
    wanted: dict[str, Any] = {  # the run's own task runs, and those of its segments
        "flow_runs": {"operator": "or_", "id": own, "parent_flow_run_id": own}
    }
    if unfinished:
        wanted["task_runs"] = {
            "state": {"type": {"any_": ["PENDING", "RUNNING", "SCHEDULED"]}},
            "subflow_runs": {"exists_": False},  # a segment's end is recorded at once, or never
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
