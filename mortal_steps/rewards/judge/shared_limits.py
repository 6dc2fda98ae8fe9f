"""The limits of a judge over all runs of a Prefect server, as its global concurrency limits.

    mortal-judge MODEL at HOST concurrency     slots, each under a lease that ends by itself
    mortal-judge MODEL at HOST requests        slots that decay: a rate limit
    mortal-judge MODEL at HOST tokens          the same

They are made at the first need. One that is there already stays as it is, so that what somebody set
in Prefect's pages holds for every run. Spoken to by HTTP: the library knows no orchestrator. A
server that is away stops nobody; the limits of the process hold in any case.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from mortal_steps.rewards.judge.leases import LEASE_S, Leases
from mortal_steps.rewards.judge.limits import (
    WINDOW_S,
    Allowed,
    Clock,
    NoRoomError,
    ProcessLimits,
    Taken,
)
from mortal_steps.rewards.judge.tls import trusted

logger = logging.getLogger(__name__)

ANSWER_S = 5.0
"""Seconds that the server may take to answer."""

LEFT_ALONE_S = 30.0
"""Seconds for which a server that did not answer is not asked again."""

LONGEST_WAIT_S = 5.0
"""Longest time between two requests for room; if many wait, the server asks for longer times."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Orchestrator:
    """A Prefect server, with the headers that its API needs."""

    api_url: str
    headers: Mapping[str, str] = field(repr=False)


def orchestrator(api_url: str | None, environment: Mapping[str, str]) -> Orchestrator | None:
    """The server at `api_url`, with the credentials that an environment holds, if any."""
    if not api_url:
        return None
    key, password = environment.get("PREFECT_API_KEY"), environment.get("PREFECT_API_AUTH_STRING")
    headers = {}
    if key:
        headers = {"Authorization": f"Bearer {key}"}
    elif password:
        headers = {"Authorization": f"Basic {base64.b64encode(password.encode()).decode()}"}
    return Orchestrator(api_url=api_url.rstrip("/"), headers=headers)


class _AwayError(Exception):
    """The server gave no answer that helps."""


class SharedLimits:
    """`ProcessLimits`, and beyond these what the server of all runs allows.

    While the server is away, each of `sharing` processes keeps to its part.
    """

    def __init__(
        self,
        allowed: Allowed,
        clock: Clock,
        server: Orchestrator,
        *,
        model: str,
        base_url: str,
        sharing: int = 1,
    ) -> None:
        self._own = ProcessLimits(allowed, clock)
        self._part = ProcessLimits(allowed.shared_by(sharing), clock)
        self._allowed = allowed
        self._name = limit_name(model, base_url)
        self._client = httpx.Client(
            base_url=f"{server.api_url}/v2/concurrency_limits",
            headers=dict(server.headers),
            timeout=ANSWER_S,
            verify=trusted(),
        )
        self._leases = Leases(self._client)
        self._made = False
        self._most: dict[str, int] = {}
        """Slots of each limit: more cannot be asked for at once."""
        self._making = threading.Lock()
        self._alone_until = float("-inf")

    @property
    def clock(self) -> Clock:
        """See `Limits.clock`."""
        return self._own.clock

    @contextlib.contextmanager
    def permit(self, tokens: int, until: float) -> Iterator[Taken]:
        """See `Limits.permit`."""
        with self._own.permit(tokens, until) as taken:
            lease = self._ask_for_all(tokens, until)
            if lease is None and self._is_alone:
                with self._part.permit(tokens, until):
                    yield taken
                return
            if lease is None:
                yield taken
                return
            self._leases.hold(lease)
            try:
                yield taken
            finally:
                self._leases.give_back(lease)

    @property
    def _is_alone(self) -> bool:
        """Whether the server did not answer recently."""
        return self.clock.now() < self._alone_until

    def _ask_for_all(self, tokens: int, until: float) -> str | None:
        """Room in every limit; the lease of the place, if places are limited."""
        if self._is_alone:
            return None
        try:
            self._make()
            if self._allowed.requests_per_minute is not None:
                self._wait_for("requests", 1, until)
            if self._allowed.tokens_per_minute is not None:
                self._wait_for("tokens", tokens, until)
            if self._allowed.concurrency is not None:
                return str(_said(self._wait_for("concurrency", 1, until), "lease_id"))
        except (_AwayError, httpx.HTTPError) as error:
            self._alone_until = self.clock.now() + LEFT_ALONE_S
            self._made = False  # somebody may have changed them
            logger.warning(
                "a judge's limits are not shared with other runs for %g s, those of this process "
                "hold: %s",
                LEFT_ALONE_S,
                error,
            )
        return None

    def _wait_for(self, what: str, slots: int, until: float) -> httpx.Response:
        """The response that gives the slots."""
        slots = max(1, min(slots, self._most[what]))
        body: dict[str, Any] = {"slots": slots, "names": [f"{self._name} {what}"]}
        if what == "concurrency":
            path, body["lease_duration"] = "/increment-with-lease", LEASE_S
        else:
            path, body["mode"] = "/increment", "rate_limit"
        while True:
            response = self._client.post(path, json=body)
            if response.status_code == httpx.codes.OK:
                return response
            if response.status_code != httpx.codes.LOCKED:
                raise _AwayError(f"{path} answers with status {response.status_code}")
            wait = min(_retry_after(response), LONGEST_WAIT_S)
            if self.clock.now() + wait > until:
                raise NoRoomError(f"the limit {self._name} {what} leaves no room in time")
            self.clock.sleep(wait)

    def _make(self) -> None:
        """Let the limits be there."""
        with self._making:
            if self._made:
                return
            if self._allowed.concurrency is not None:
                self._create("concurrency", {"limit": self._allowed.concurrency})
            if self._allowed.requests_per_minute is not None:
                self._create("requests", _rate(self._allowed.requests_per_minute))
            if self._allowed.tokens_per_minute is not None:
                self._create("tokens", _rate(self._allowed.tokens_per_minute))
            self._made = True

    def _create(self, what: str, settings: Mapping[str, Any]) -> None:
        name = f"{self._name} {what}"
        response = self._client.post("/", json={"name": name, **settings})
        if response.status_code == httpx.codes.CONFLICT:
            response = self._client.get(f"/{name}")
        if response.status_code not in (httpx.codes.CREATED, httpx.codes.OK):
            raise _AwayError(f"it has no limit {name!r} and makes none ({response.status_code})")
        self._most[what] = int(_said(response, "limit"))


def _said(response: httpx.Response, key: str) -> Any:
    """A value in the response. Raises `_AwayError` if it is not there: something else than a
    Prefect server may have answered, such as a proxy."""
    try:
        return response.json()[key]
    except (ValueError, KeyError, TypeError):
        raise _AwayError(f"{response.url} answers without {key!r}, as no Prefect server") from None


def _retry_after(response: httpx.Response) -> float:
    try:
        return max(0.0, float(response.headers["retry-after"]))
    except (KeyError, ValueError):  # a proxy may give a date
        return 1.0


def limit_name(model: str, base_url: str) -> str:
    """Name of a model's limit, without characters that Prefect does not allow in names."""
    name = f"mortal-judge {model} at {urlsplit(base_url).netloc}"
    return "".join("-" if character in "/%&<>" else character for character in name)


def _rate(per_minute: int) -> dict[str, Any]:
    """Slots, and how many are free again each second: no 60 seconds have more than `per_minute`."""
    at_once = max(1, per_minute // 2)
    return {
        "limit": at_once,
        "slot_decay_per_second": max(1, per_minute - at_once) / WINDOW_S,
    }
