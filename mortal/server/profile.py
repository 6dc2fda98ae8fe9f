"""The server that the user's active Prefect profile names, as `prefect cloud login` sets it."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def server_of_profile() -> str | None:
    """A sentence for a user whose Prefect profile names a server while the environment names none.

    The file is read without Prefect, which takes a second to import. A file that cannot be read is
    passed over, since Prefect itself reports what is wrong with it.
    """
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
