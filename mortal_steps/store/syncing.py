"""Syncing committed folders to disk, and deleting old ones, beside other work."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from mortal_steps.store.files import delete_folder
from mortal_steps.system.threads import BackgroundClock


class BackgroundSync:
    """Syncs and deletes folders in a thread, one at a time, for files that can be made again and
    whose digests show damage. The next waits for the one before."""

    def __init__(self, clock: BackgroundClock | None = None) -> None:
        """`clock` counts the seconds that it takes, as `sync` and `delete`."""
        self._clock = clock or BackgroundClock()
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="sync")
        self._running: list[Future[None]] = []

    @contextlib.contextmanager
    def starting(self, paths: Sequence[Path]) -> Iterator[None]:
        """Begin to sync files, then folders, in this order, when the block has given them their
        names. Raises what `finish` raises, before the block."""
        self.finish()
        # Opened here: what is renamed or deleted from now on is still what was meant.
        descriptors = [os.open(path, os.O_RDONLY) for path in paths]
        try:
            yield
        except BaseException:
            _close(descriptors)
            raise
        self._running.append(self._threads.submit(self._sync, descriptors))

    def remove(self, folder: Path) -> None:
        """Begin to delete a folder that is no longer used; returns at once."""
        # Not all that were removed since the last `finish`; but what failed is raised there.
        self._running = [each for each in self._running if not each.done() or each.exception()]
        self._running.append(self._threads.submit(self._delete, folder))

    def under_way(self) -> list[Future[None]]:
        """Return what has not ended, or was not waited for yet."""
        return list(self._running)

    def finish(self) -> None:
        """Wait until everything is on disk or deleted; raises the `OSError` of what failed."""
        running, self._running = self._running, []
        for each in running:
            each.result()

    def _sync(self, descriptors: Sequence[int]) -> None:
        try:
            with self._clock.running("sync"):
                for descriptor in descriptors:
                    os.fsync(descriptor)
        finally:
            _close(descriptors)

    def _delete(self, folder: Path) -> None:
        with self._clock.running("delete"):
            delete_folder(folder)


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
