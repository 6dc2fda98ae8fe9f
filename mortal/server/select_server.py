"""Chooses the Prefect server that a run reports to: the user's own, or one on loopback.

Prefect's in-process ("ephemeral") API forgets task runs when the process exits. If no server is
configured, `mortal` therefore starts a real one, with a SQLite database in the state directory.
"""

import contextlib
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mortal.server.files import Server
from mortal.server.local_server import answering, begun_server

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
    if "PREFECT_API_URL" not in os.environ and (unused := server_of_profile()) is not None:
        say(unused)
    with begun_server(ports, say) as server, answering(server, say):
        yield server


def check_configured_server() -> Server | None:
    """Return the server that the environment names, if any. Raises `ServerError`."""
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


def server_of_profile() -> str | None:
    """Return a sentence for a user whose Prefect profile names a server while the environment names
    none. The file is read without Prefect, which takes a second to import. A file that cannot be
    read is passed over, since Prefect itself reports what is wrong with it."""
    profiles = _profiles()
    name = os.environ.get("PREFECT_PROFILE") or profiles.get("active")
    profile = profiles.get("profiles", {}).get(name, {})
    url = profile.get("PREFECT_API_URL")
    if not url:
        return None
    return (
        f"your Prefect profile {name!r} names the server {url}, which is not used; to use it, set "
        f"the environment variable PREFECT_API_URL={url}"
    )


def _profiles() -> Mapping[str, Any]:
    home = os.environ.get("PREFECT_HOME") or "~/.prefect"
    path = os.environ.get("PREFECT_PROFILES_PATH") or f"{home}/profiles.toml"
    try:
        return tomllib.loads(Path(path).expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
