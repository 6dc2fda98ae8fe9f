"""Places among a judge's shared limits, each held under a lease that ends by itself.

A killed process gives nothing back, and its places would be missing to whoever comes after it. So
leases are as short as Prefect lets them be, and a thread renews those whose request takes longer.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import httpx

logger = logging.getLogger(__name__)

LEASE_S = 60.0
"""After which a place is free again whose holder was killed; Prefect allows nothing shorter. The
server looks for such places every 15 s."""
RENEW_EVERY_S = 20.0


class Leases:
    """Those that this process holds, of limits that `client` speaks of."""

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
        """Let others have the place."""
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
