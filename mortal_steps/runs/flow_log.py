"""The flow's own log in the run directory: `logs/flow.log`, beside those of its workers."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

from mortal_steps.store.files import writing

FLOW_LOG = "flow.log"
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
"""As the workers' own."""


@contextlib.contextmanager
def flow_log(folder: Path) -> Iterator[None]:
    """Append what this process logs, for the time of the block.

    Raises `StoreError` where the file cannot be opened.
    """
    path = folder / FLOW_LOG
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
        handler = _FlowLog(path, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(logging.Formatter(FORMAT))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        with contextlib.suppress(OSError):  # what a full disk has not taken yet is lost as well
            handler.close()


class _FlowLog(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:
        """A line that a full disk takes is lost; whatever the run itself cannot write ends it and
        is told."""
