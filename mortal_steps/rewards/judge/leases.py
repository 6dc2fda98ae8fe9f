"""Slots in a judge's shared limits, each under a lease that expires.

A killed process returns nothing, and its slots would be missing to the processes after it. So
leases are short, and are renewed for as long as a request takes.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import httpx

logger = logging.getLogger(__name__)

LEASE_S = 60.0
"""Seconds after which the slot of a killed holder is free again. Prefect allows nothing shorter,
and the server looks for such slots every 15 s."""
RENEW_EVERY_S = 20.0


class Leases:
    """The leases that this process holds, on limits of the server that `client` speaks to."""

    def __init__(self, client: httpx.Client, renew_every_s: float = RENEW_EVERY_S) -> None:
        self._client = client
        self._renew_every_s = renew_every_s
        self._held: set[str] = set()
        self._changing = threading.Lock()
        self._renewing: threading.Thread | None = None

    def hold(self, lease: str) -> None:
        """Renew this lease until it is given back."""
        with self._changing:
            self._held.add(lease)
            if self._renewing is None:
                self._renewing = threading.Thread(target=self._renew, name="leases", daemon=True)
                self._renewing.start()

    def give_back(self, lease: str) -> None:
        """Return the slot to others."""
        with self._changing:
            self._held.discard(lease)
        self._tell("/decrement-with-lease", {"lease_id": lease}, "given back")

    def _renew(self) -> None:
        while True:
            time.sleep(self._renew_every_s)
            with self._changing:
                held = sorted(self._held)
                if not held:
                    self._renewing = None
                    return
            for lease in held:
                self._tell(f"/leases/{lease}/renew", {"lease_duration": LEASE_S}, "renewed")

    def _tell(self, path: str, body: dict[str, Any], what: str) -> None:
        try:
            self._client.post(path, json=body).raise_for_status()
        except httpx.HTTPError as error:  # it ends by itself
            logger.warning("a place among a judge's limits was not %s: %s", what, error)
