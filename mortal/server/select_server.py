"""Chooses the Prefect server that a run reports to: the user's own, or one on loopback.

Prefect's in-process ("ephemeral") API forgets task runs when the process exits. If no server is
configured, `mortal` therefore starts a real one, with a SQLite database in the state directory.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence

from mortal.server.files import Server
from mortal.server.local_server import begun_server

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@contextlib.contextmanager
def prefect_server(say: Callable[[str], None], ports: Sequence[int] = (0,)) -> Iterator[Server]:
    """Provide a server during the block, where `PREFECT_API_URL` names it.

    This is the user's own server if the environment sets `PREFECT_API_URL`; otherwise one that
    another command started; otherwise a new one, which ends with the last command that uses it.
    See `begun_server` for the `ports`. `say` receives messages for the user. Raises `ServerError`.
    """
    configured = check_configured_server()
    if configured is not None:
        yield configured
        return
    with begun_server(ports, say) as server:
        yield server.answering()


def check_configured_server() -> Server | None:
    """Return the user's own server, if the environment names one. Raises `ServerError` if this user
    cannot use it."""
    prepare_client()
    configured = os.environ.get("PREFECT_API_URL")
    if not configured:
        return None
    from mortal.server.api import check_serves  # imports Prefect

    check_serves(configured)
    return Server(api_url=configured)


def prepare_client() -> None:
    """Set the environment of Prefect's client, which must happen before Prefect is imported: no
    proxy between processes on this machine, and no telemetry."""
    os.environ.setdefault("DO_NOT_TRACK", "1")
    named = [os.environ.get(name, "") for name in ("no_proxy", "NO_PROXY")]
    merged = ",".join(dict.fromkeys([*filter(None, ",".join(named).split(",")), *LOOPBACK]))
    os.environ.update(no_proxy=merged, NO_PROXY=merged)
