"""The run's logs: JSON lines that grow with every step, and whose past is vouched for.

The manifest notes, with every step, how long each log was and what that much of it hashes to. Going
on cuts the log to that length, whatever a killed process has appended since; a log that does not
hash to what was noted is damaged.

Every line belongs to a step (`step` in it: train steps done), and only the process that drives the
run appends.
"""

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mortal_steps.store.files import failed_write, write_atomically, writing

logger = logging.getLogger(__name__)

METRICS = "metrics.jsonl"
TIMINGS = "timings.jsonl"
EVALUATIONS = "evaluations.jsonl"
QUARANTINE = "quarantine.jsonl"
SELECTIONS = "selections.jsonl"
USAGE = "usage.jsonl"
LOGS = (METRICS, TIMINGS, EVALUATIONS, QUARANTINE, SELECTIONS, USAGE)
NOT_OF_EVERY_RUN = {SELECTIONS, USAGE}
"""Logs that runs of earlier versions do not have."""
FLOW_LOG = "flow.log"
FLOW_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
"""As the workers' own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LogMark:
    """The part of a log that belongs to the steps done."""

    length: int
    """Bytes from the log's beginning."""
    sha256: str
    """Digest of those bytes, hexadecimal."""


EMPTY = LogMark(length=0, sha256=hashlib.sha256().hexdigest())


class RunLogs:
    """The logs of one run directory. Appending costs the same however long a log is."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._written: dict[str, tuple[int, Any]] = {}
        """Length and running sha256 of the logs read or written so far."""

    def append(self, name: str, *rows: Mapping[str, Any]) -> None:
        """Append one line per row. If this raises `StoreError`, none of them was written."""
        content = _lines(rows)
        length, running = self._state(name)
        path = self._root / name
        try:
            with path.open("ab") as file:
                file.write(content)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.truncate(path, length)
            raise failed_write(path, error) from error
        running.update(content)
        self._written[name] = (length + len(content), running)

    def marks(self) -> dict[str, LogMark]:
        """Return the present length and digest of every log."""
        return {name: self._mark(name) for name in LOGS}

    def cut(self, marks: Mapping[str, LogMark]) -> list[str]:
        """Cut each log to its mark; returns the names of those, left as they are, that do not begin
        as their mark says or have none."""
        damaged = self.damaged(marks)
        for name in LOGS:
            if name not in damaged and (path := self._root / name).exists():
                os.truncate(path, marks.get(name, EMPTY).length)
        self._written.clear()
        return damaged

    def damaged(self, marks: Mapping[str, LogMark]) -> list[str]:
        """Return the names of logs that have no mark, or do not begin with what it describes. Where
        there are no marks at all, the manifest was lost, and nothing is known of any log."""
        without = dict.fromkeys(NOT_OF_EVERY_RUN if marks else (), EMPTY)
        known = {**without, **marks}
        found = ((name, known.get(name), self._root / name) for name in LOGS)
        return [
            name
            for name, mark, path in found
            if mark is None or prefix_digest(path, mark.length) != mark.sha256
        ]

    def replace(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        write_atomically(self._root / name, _lines(rows))
        self._written.pop(name, None)

    def keep_until(self, step: int) -> None:
        for name in LOGS:
            rows = self.read(name)
            kept = [row for row in rows if row["step"] <= step]
            if len(kept) < len(rows):
                self.replace(name, kept)

    def read(self, name: str) -> list[dict[str, Any]]:
        return read_lines(self._root / name, needs=("step",))

    def _mark(self, name: str) -> LogMark:
        length, running = self._state(name)
        return LogMark(length=length, sha256=running.hexdigest())

    def _state(self, name: str) -> tuple[int, Any]:
        if name not in self._written:
            path = self._root / name
            content = path.read_bytes() if path.exists() else b""
            self._written[name] = (len(content), hashlib.sha256(content))
        return self._written[name]


def read_lines(path: Path, *, needs: Collection[str] = ()) -> list[dict[str, Any]]:
    """Read a log's JSON objects with the keys `needs`; a last line that a crash cut short is left
    out, any other unreadable one too, with a warning."""
    if not path.exists():
        return []
    *whole, _ = path.read_bytes().split(b"\n")
    rows = []
    for number, line in enumerate(whole, start=1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if isinstance(row, dict) and row.keys() >= set(needs):
            rows.append(row)
        else:
            logger.warning("%s is damaged: line %d cannot be read and is left out", path, number)
    return rows


def append_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append one line per row to a file that is never cut back; a line that a crash has cut short
    stays one of its own. Raises `OSError`."""
    content = _lines(rows)
    with path.open("a+b") as file:
        length = file.seek(0, os.SEEK_END)
        if length:
            file.seek(length - 1)
            if file.read(1) != b"\n":
                content = b"\n" + content
        file.write(content)


def prefix_digest(path: Path, length: int) -> str | None:
    """Return the sha256 of the first `length` bytes, None if fewer; a missing file is empty."""
    content = b""
    if path.exists():
        with path.open("rb") as file:
            content = file.read(length)
    return hashlib.sha256(content).hexdigest() if len(content) == length else None


def _lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@contextlib.contextmanager
def flow_log(folder: Path) -> Iterator[None]:
    """Append what this process logs to `logs/flow.log` for the block. Raises `StoreError`."""
    path = folder / FLOW_LOG
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
        handler = _FlowLog(path, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(logging.Formatter(FLOW_FORMAT))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        with contextlib.suppress(OSError):  # what a full disk has not taken yet is lost as well
            handler.close()


class _FlowLog(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:
        """Lose a line that a full disk takes: what the run cannot write ends it and is reported."""
