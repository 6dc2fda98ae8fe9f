"""Syncing committed folders to disk beside other work."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path


class BackgroundSync:
    """For what can be made again, and is known to be damaged by its digest where a power cut hits
    it. One folder at a time: the next waits for the one before."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="sync")
        self._running: Future[None] | None = None

    def start(self, paths: Sequence[Path]) -> None:
        """Sync files, then folders, in this order; returns at once. Raises what `finish` raises."""
        self.finish()
        # Opened here: what is renamed or deleted from now on is still what was meant.
        descriptors = [os.open(path, os.O_RDONLY) for path in paths]
        self._running = self._threads.submit(_sync, descriptors)

    def finish(self) -> None:
        """Wait until all is on disk; raises the `OSError` of what is not."""
        running, self._running = self._running, None
        if running is not None:
            running.result()


def _sync(descriptors: Sequence[int]) -> None:
    try:
        for descriptor in descriptors:
            os.fsync(descriptor)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
