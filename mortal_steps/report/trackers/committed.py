"""What a run has committed, read by another process while the run goes on.

The manifest says after every step how far each log belongs to the steps done; what stands behind
that may be cut off again, and is not read.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mortal_steps.errors import CorruptFileError, DataError
from mortal_steps.report.dialogue import prompt_text
from mortal_steps.report.held_out import HeldOutScores
from mortal_steps.report.samples import Sample, samples_of
from mortal_steps.report.trackers.base import STEP, Entry
from mortal_steps.runs.logs import EVALUATIONS, METRICS, TIMINGS, LogMark
from mortal_steps.runs.manifest import MANIFEST_FILE, RunManifest
from mortal_steps.runs.run import Run
from mortal_steps.system.texts import storable

Row = Mapping[str, Any]
Rows = Iterator[dict[str, Any]]

READ = (METRICS, EVALUATIONS, TIMINGS)
"""Logs that trackers get."""
SAMPLES_OF_A_KIND = 4
"""Best, worst and masked completions each, in a table."""
LONGEST_TEXT = 2000
"""Characters of a prompt or a completion in a table."""
AFTER_A_STEP = ("evaluate", "checkpoint")
"""Stages whose lines name the step that was done before; those of others, the step under way."""


class GrowingLog:
    """A log of the run, of which each line is read once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        """Bytes."""
        self._inode = 0

    def new_rows(self, length: int) -> Rows:
        """Yield the lines up to `length` that were not read yet; all of them again where the log
        was made anew. A line that cannot be read is left out: `log_repair` warns of it."""
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

    def __init__(self, run: Run, sample_steps: int) -> None:
        """`sample_steps`: steps between two tables of completions; 0: there are none."""
        self._run = run
        self._sample_steps = sample_steps
        self._logs = {name: GrowingLog(run.store.path(name)) for name in READ}
        self._metrics: dict[int, dict[str, Any]] = {}
        self._evaluations: dict[int, dict[str, Any]] = {}
        self._timings: dict[int, list[dict[str, Any]]] = defaultdict(list)
        self._seen = (0, 0)
        """Inode and time of the manifest that was read last."""

    def new(self, after: int) -> Iterator[Entry]:
        """Yield entries of the steps behind `after` that are committed and were not yielded yet."""
        manifest = self._manifest()
        if manifest is None:
            return
        self._take(manifest.logs, after)
        ready = sorted({*self._metrics, *self._evaluations})
        for step in (step for step in ready if step <= manifest.step):
            evaluation = self._evaluations.pop(step, None)
            yield entry_of(
                step,
                self._metrics.pop(step, None),
                None if evaluation is None else self._ends(step) | evaluation,
                self._timings.pop(step, ()),
                samples_at(self._run, step, self._sample_steps),
            )

    def _ends(self, step: int) -> dict[str, float]:
        """Return both ends of the intervals of an evaluation's scores."""
        # It is read here once: what it has read of shards need not stay in memory.
        intervals = HeldOutScores(self._run).intervals(step)
        lows = {f"{name}/low": interval.low for name, interval in intervals.items()}
        return lows | {f"{name}/high": interval.high for name, interval in intervals.items()}

    def _manifest(self) -> RunManifest | None:
        try:
            stat = self._run.store.path(MANIFEST_FILE).stat()
            # Two manifests may be written within one tick of the file system's clock.
            changed = stat.st_ino, stat.st_mtime_ns
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


def entry_of(
    step: int,
    metrics: Row | None,
    evaluation: Row | None,
    timings: Iterable[Row] = (),
    samples: Sequence[Sample] = (),
) -> Entry:
    """Make an entry of a step's lines in the logs."""
    values = {
        **_numbers("train", metrics or {}),
        **_numbers("eval", evaluation or {}),
        **_seconds(timings),
        STEP: float(step),
    }
    return Entry(step=step, values=values, samples=[_cells(sample) for sample in samples])


def step_of_timing(row: Row) -> int:
    """Return the step whose entry a line of timings.jsonl belongs to."""
    done: int = row["step"]
    return done if row["stage"] in AFTER_A_STEP else done + 1


def samples_at(run: Run, step: int, every: int) -> list[Sample]:
    """Return completions of a step with a table (first, last, each `every`); None if not kept."""
    if not every or not (step == 1 or step % every == 0 or step == run.info.num_steps):
        return []
    try:
        return samples_of(run, SAMPLES_OF_A_KIND, step=step)
    except (DataError, CorruptFileError):
        return []


def _numbers(prefix: str, row: Row) -> dict[str, float]:
    return {
        f"{prefix}/{key}": float(value)
        for key, value in row.items()
        if key != "step" and isinstance(value, int | float)
    }


def _seconds(timings: Iterable[Row]) -> dict[str, float]:
    """Add up by stage: inside workers, where parallel calls add up, and waiting for them."""
    total: dict[str, float] = defaultdict(float)
    for row in timings:
        total[f"time/{row['stage']}_s"] += row["busy_s"]
        total[f"time/{row['stage']}_wait_s"] += row["wait_s"]
    return dict(total)


def _cells(sample: Sample) -> list[Any]:
    prompt = storable(prompt_text(sample.prompt)[-LONGEST_TEXT:])
    text = storable(sample.text[:LONGEST_TEXT])
    reward = None if sample.reward is None else float(sample.reward)
    return [sample.kind, sample.problem_id, prompt, text, reward]
