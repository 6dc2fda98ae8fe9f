"""What `mortal doctor` finds about the Prefect server that runs of this machine report to.

Prefect reads its settings when it is imported, which this does: see `mortal.server.api`.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from importlib import metadata
from typing import Any

import httpx
from prefect.client.orchestration import SyncPrefectClient
from prefect.events.schemas.automations import AutomationCore
from pydantic import TypeAdapter

from mortal.maintenance import Finding, ok, problem, warning
from mortal.server.api import check_serves, client_of
from mortal.server.automations import deployed
from mortal.server.recovery import (
    ALL,
    HEARTBEAT_SETTING,
    SILENT,
    Deployed,
    ids_watched,
    names,
)
from mortal_steps.errors import ServerError

BUFFER = "PREFECT_SERVER_EVENTS_EXPIRED_BUCKET_BUFFER"
REMEMBERS = timedelta(days=30)
"""How long a server should remember which runs it expects heartbeats from."""
ORDERING = "PREFECT_SERVER_EVENTS_CAUSAL_ORDERING"
OUR_ORDERING = "mortal.server.ordering"
LEASES = "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE"
LEASES_IN_MEMORY = "prefect.server.concurrency.lease_storage.memory"
LEASES_IN_FILES = "prefect.server.concurrency.lease_storage.filesystem"
OFTEN_ENOUGH_S = 90
"""Longest time in seconds between heartbeats that `mortal automate` can watch without an option."""


def look_at_server(api_url: str) -> Iterator[Finding]:
    """Check that the server answers, is of this version, and does what runs need."""
    try:
        check_serves(api_url)
        with client_of(api_url) as client:
            yield version(api_url, client.api_version(), metadata.version("prefect"))
            deployments = deployed(client)
            if deployments:
                yield automations(_made(client), deployments)
                settings = _settings(client)
                if settings is not None:
                    yield memory(settings)
    except (ServerError, httpx.HTTPError) as error:
        yield problem("server", str(error))


def version(api_url: str, there: str, here: str) -> Finding:
    if there == here:
        return ok("server", f"{api_url} answers, Prefect {there} as here")
    text = f"{api_url} has Prefect {there}, this machine {here}; install one version on both"
    return warning("server", text)


def _made(client: SyncPrefectClient) -> list[AutomationCore]:
    wanted = {"automations": {"name": {"any_": list(ALL)}}}
    answer = client.request("POST", "/automations/filter", json=wanted).json()
    return TypeAdapter(list[AutomationCore]).validate_python(answer)


def automations(made: Sequence[AutomationCore], deployments: Sequence[Deployed]) -> Finding:
    """Check whether crashed or silent runs are restarted, for all deployments."""
    what = "automations"
    off = [each.name for each in made if not each.enabled]
    if off:
        text = f"switched off: {', '.join(off)}; `mortal automate` makes them anew"
        return warning(what, text)
    if not {*ALL} - {SILENT} <= {each.name for each in made}:
        text = "some are not there; `mortal automate` makes those that bring crashed runs back"
        return warning(what, text)
    ids = {id for each in made if each.name == SILENT for id in ids_watched(each)}
    silent = [each for each in deployments if str(each.id) not in ids]
    if not silent:
        return ok(what, "runs of deployments that crash come back")
    remedy = "`mortal automate`"
    rare = [each for each in silent if each.heartbeat_s >= OFTEN_ENOUGH_S]
    if rare:
        env = f"the env of the job variables of {names(rare)}"
        remedy = f"set {HEARTBEAT_SETTING} = 30 in {env}, deploy, and call {remedy}"
    text = f"a machine that is lost is not noticed in runs of {names(silent)}; {remedy}"
    return warning(what, text)


def memory(settings: Mapping[str, Any]) -> Finding:
    """Check whether a restarted server remembers heartbeats and concurrency slots."""
    events = settings["server"]["events"]
    leases = settings["server"]["concurrency"]["lease_storage"]
    lacking = [
        setting
        for setting, has in (
            (f"{BUFFER}=P30D", _span(events["expired_bucket_buffer"]) >= REMEMBERS),
            (f"{ORDERING}={OUR_ORDERING}", events["causal_ordering"] == OUR_ORDERING),
            (f"{LEASES}={LEASES_IN_FILES}", leases != LEASES_IN_MEMORY),
        )
        if not has
    ]
    if not lacking:
        return ok("recovery", "the server remembers over a restart which runs it heard from")
    text = f"a restart of the server may lose or cancel runs; give it {' '.join(lacking)}"
    return warning("recovery", text)


def _settings(client: SyncPrefectClient) -> Mapping[str, Any] | None:
    """Return the server's settings; None for Prefect Cloud, which does not reveal them."""
    try:
        found: Mapping[str, Any] = client.request("GET", "/admin/settings").json()
    except httpx.HTTPStatusError as error:
        if error.response.status_code == httpx.codes.NOT_FOUND:
            return None
        raise
    return found


def _span(text: Any) -> timedelta:
    return TypeAdapter(timedelta).validate_python(text)
