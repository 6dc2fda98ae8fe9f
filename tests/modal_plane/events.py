"""The event log: what tests read to learn what the plane did."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any


class EventLog:
    """Events in the order they happened, in memory and as JSON lines in a file.

    Each is `{"t": seconds since the epoch, "kind": ..., ...}`. README.md lists the kinds.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self.events: list[dict[str, Any]] = []

    def add(self, kind: str, **details: Any) -> None:
        """Record one event now."""
        event = {"t": time.time(), "kind": kind, **details}
        self.events.append(event)
        self._file.write(json.dumps(event) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()
