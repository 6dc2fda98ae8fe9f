"""What a run has committed, read by another process while the run goes on.

The manifest tells after every step how far each log belongs to the steps done; what stands behind
that may be cut off again, and is not read.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mortal_steps.errors import CorruptFileError
from mortal_steps.report.trackers.base import Entry
from mortal_steps.report.trackers.entries import entry_of, samples_at, step_of_timing
from mortal_steps.rewards.judge.ledger import Spending
from mortal_steps.runs.costs import COSTS, read_costs
from mortal_steps.runs.logs import EVALUATIONS, METRICS, TIMINGS, LogMark
from mortal_steps.runs.manifest import MANIFEST_FILE, RunManifest
from mortal_steps.runs.run import Run

Rows = Iterator[dict[str, Any]]

READ = (METRICS, EVALUATIONS, TIMINGS)
"""Logs that trackers are told of."""


class GrowingLog:
    """A log of the run, of which each line is read once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        """Bytes."""
        self._inode = 0

    def new_rows(self, length: int) -> Rows:
        """The lines up to `length` that were not read yet; all of them again where the log was
        made anew. A line that cannot be read is left out: `log_repair` warns of it."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            inode = os.fstat(file.fileno()).st_ino
            if inode != self._inode or length < self._read:
                self._inode, self._read = inode, 0
            file.seek(self._read)
            content = file.read(length - self._read)
        whole = content[: content.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and isinstance(row.get("step"), int):
                yield row


class CommittedSteps:
    """The entries of a run, in order, as its steps are committed."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._logs = {name: GrowingLog(run.store.path(name)) for name in READ}
        self._metrics: dict[int, dict[str, Any]] = {}
        self._evaluations: dict[int, dict[str, Any]] = {}
        self._timings: dict[int, list[dict[str, Any]]] = defaultdict(list)
        self._spending = Spending(run.store.root)
        self._seen = 0

    def new(self, after: int) -> Iterator[Entry]:
        """Entries of the steps behind `after` that are committed and were not told yet."""
        manifest = self._manifest()
        if manifest is None:
            return
        self._take(manifest.logs, after)
        ready = sorted({*self._metrics, *self._evaluations})
        costs = self._costs() if ready else {}
        for step in (step for step in ready if step <= manifest.step):
            yield entry_of(
                step,
                self._metrics.pop(step, None),
                self._evaluations.pop(step, None),
                self._timings.pop(step, ()),
                {kind: _until(step, spent) for kind, spent in costs.items()},
                samples_at(self._run, step, self._run.config.logging.sample_steps),
            )

    def _manifest(self) -> RunManifest | None:
        """The manifest, if it is another one than before."""
        try:
            changed = self._run.store.path(MANIFEST_FILE).stat().st_mtime_ns
            if changed == self._seen:
                return None
            found = self._run.store.find_record(MANIFEST_FILE, RunManifest)
        except (CorruptFileError, FileNotFoundError):  # the run's driver makes it again
            return None
        if found is None:
            return None
        self._seen, self._run.manifest = changed, found[1]
        return found[1]

    def _take(self, marks: Mapping[str, LogMark], after: int) -> None:
        rows = {
            name: log.new_rows(marks[name].length) if name in marks else iter(())
            for name, log in self._logs.items()
        }
        self._metrics |= {row["step"]: row for row in rows[METRICS] if row["step"] > after}
        self._evaluations |= {row["step"]: row for row in rows[EVALUATIONS] if row["step"] > after}
        for row in rows[TIMINGS]:
            if "stage" in row and step_of_timing(row) > after:
                self._timings[step_of_timing(row)].append(row)

    def _costs(self) -> dict[str, list[tuple[int, float]]]:
        """Dollars by kind, with the step that they were spent in; those of judges have none."""
        rows = read_costs(self._run.store.path(COSTS))
        judged = self._spending.so_far().dollars
        found = {"container": [(row["step"], row["dollars"]) for row in rows]} if rows else {}
        return {**found, "judge": [(0, judged)]} if judged else found


def _until(step: int, spent: Sequence[tuple[int, float]]) -> float:
    return sum(dollars for at, dollars in spent if at <= step)
