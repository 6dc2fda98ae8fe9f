"""How long threads work beside what their process is asked for."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator


class BackgroundClock:
    """Adds up seconds by the name of the work, until somebody takes them. For several threads."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def running(self, name: str) -> Iterator[None]:
        """Count the time of the block."""
        began = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                spent = self._seconds.get(name, 0.0) + time.perf_counter() - began
                self._seconds[name] = spent

    def take(self) -> dict[str, float]:
        """What has ended since the last call."""
        with self._lock:
            taken, self._seconds = self._seconds, {}
        return taken
