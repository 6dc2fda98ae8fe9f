"""Requests to a Prefect server, through Prefect's own client.

They therefore reach any server that Prefect's settings can reach: one with a password, with
protection against forged requests, behind a proxy or TLS, or Prefect Cloud. This module imports
Prefect, which reads its settings when it is imported. So import it only after the environment says
which server to use.
"""

import contextlib
from collections.abc import Collection, Iterator

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.events.schemas.automations import Automation, AutomationCore
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from mortal_steps.errors import ServerError

ANSWER_TIMEOUT_S = 20.0
PAGE = 200
"""Automations that one request asks for."""
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


def _refused(api_url: str, error: httpx.HTTPStatusError) -> ServerError:
    code = error.response.status_code
    if code in REFUSED:
        return ServerError(
            f"PREFECT_API_URL = {api_url} refuses this user (status {code}); set "
            "PREFECT_API_AUTH_STRING to the server's PREFECT_SERVER_API_AUTH_STRING, or "
            "PREFECT_API_KEY for Prefect Cloud"
        )
    return ServerError(
        f"PREFECT_API_URL = {api_url} is not the address of a Prefect API (status {code}); such an "
        "address ends in /api, as in http://127.0.0.1:4200/api"
    )


def make_automation(client: SyncPrefectClient, wanted: AutomationCore) -> bool:
    """Make the automation unless it exists; returns whether it was made. Different ones of its name
    are deleted afterwards, so that no event is missed in between."""
    there = client.read_automations_by_name(wanted.name)
    same = [each for each in there if AutomationCore.model_validate(dict(each)) == wanted]
    if not same:
        client.create_automation(wanted)
    for each in there:
        if each not in same[:1]:
            client.delete_automation(each.id)
    return not same


def delete_automations(
    client: SyncPrefectClient, prefixes: tuple[str, ...], *, but: Collection[str] = ()
) -> list[str]:
    """Delete the automations whose names begin with one of these texts, `but` those of these names.
    Returns the names of those that were deleted."""
    there: list[Automation] = []
    while page := client.read_automations(limit=PAGE, offset=len(there)):
        there += page
    found = [each for each in there if each.name.startswith(prefixes) and each.name not in but]
    for automation in found:
        client.delete_automation(automation.id)
    return [automation.name for automation in found]
