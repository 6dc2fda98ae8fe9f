"""Whether W&B is told over the network, or in files alone."""

from __future__ import annotations

import netrc
import urllib.parse
from collections.abc import Mapping
from typing import Literal

Mode = Literal["online", "offline", "disabled"]

CLOUD = "https://api.wandb.ai"


def chosen_mode(environment: Mapping[str, str]) -> Mode:
    """What WANDB_MODE says; without it, online where there is a key."""
    mode = environment.get("WANDB_MODE", "")
    if mode in ("offline", "dryrun"):
        return "offline"
    if mode == "disabled":
        return "disabled"
    return "online" if mode or has_key(environment) else "offline"


def has_key(environment: Mapping[str, str]) -> bool:
    """Whether W&B finds credentials in the environment or in ~/.netrc."""
    if environment.get("WANDB_API_KEY") or environment.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    host = urllib.parse.urlsplit(environment.get("WANDB_BASE_URL", CLOUD)).hostname or ""
    try:
        return netrc.netrc(environment.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
