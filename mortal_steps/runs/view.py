"""A run for code that only looks at it: it is read from its directory and never changed.

Commands that look at runs take milliseconds. So nothing here needs pydantic, whose import takes
longer than that. `Run`, which can be changed, is derived from this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from mortal_steps.config.recorded import RecordedConfig, read_recorded_config
from mortal_steps.errors import CorruptFileError, RunNotFoundError, StoreError
from mortal_steps.runs.lease import is_driven
from mortal_steps.runs.logs import METRICS, TIMINGS, RunLogs, read_lines
from mortal_steps.runs.manifest import MANIFEST_FILE, RunManifest, read_manifest
from mortal_steps.store import RunStore
from mortal_steps.store.identity import (
    CONFIG_FILE,
    IDENTITY_FILE,
    NO_OTHER_COPY,
    check_config,
    read_identity,
)
from mortal_steps.types.identity import RunInfo

logger = logging.getLogger(__name__)

MOST_NAMED = 20
"""Runs that an error names."""


class RunView:
    """A run directory with its identity, its manifest and its logs."""

    def __init__(self, store: RunStore, info: RunInfo) -> None:
        self.store = store
        self.info = info
        self.manifest = self._read_manifest()
        self.logs = RunLogs(store.root)

    def recorded_config(self) -> RecordedConfig:
        """The part of the run's configuration that is shown; raises `CorruptFileError` if
        config.toml was altered."""
        check_config(self.store, self.info)
        return read_recorded_config(self.store.path(CONFIG_FILE))

    def status(self) -> str:
        """The manifest's status, or `interrupted` for a running one that no process drives."""
        if self.manifest.status == "running" and not is_driven(self.store):
            return "interrupted"
        return self.manifest.status

    def read_again(self) -> None:
        """Read the run directory again: it may have been written since the run was opened."""
        self.manifest = self._read_manifest()

    def metrics(self) -> list[dict[str, Any]]:
        """Rows of metrics.jsonl."""
        return read_lines(self.store.path(METRICS), needs=("step", "reward"))

    def timings(self) -> list[dict[str, Any]]:
        """Rows of timings.jsonl."""
        return read_lines(self.store.path(TIMINGS), needs=("step", "stage", "busy_s", "wait_s"))

    def _read_manifest(self) -> RunManifest:
        return read_manifest(self.store, num_eval_problems=self.info.num_eval_problems)


Found = TypeVar("Found", bound=RunView)


def view_run(runs_dir: Path, run_id: str) -> RunView:
    """An existing run; raises as `opened` does."""
    return opened(runs_dir, run_id, RunView)


def view_runs(runs_dir: Path) -> list[RunView]:
    """Every run below `runs_dir`; see `every`."""
    return every(runs_dir, view_run)


def opened(runs_dir: Path, run_id: str, make: Callable[[RunStore, RunInfo], Found]) -> Found:
    """An existing run, made by `make`.

    Raises `RunNotFoundError`, `CorruptFileError` if run.json is damaged, and `StoreError` if it
    cannot be read at all.
    """
    store = RunStore(runs_dir / run_id)
    try:
        info = read_identity(store)
        if info is not None:
            # A folder that was renamed or copied is found by its name from then on.
            return make(store, replace(info, run_id=store.root.name))
    except OSError as error:  # somebody else's, in a folder that several people share
        raise StoreError(
            f"run {run_id} in {runs_dir} cannot be read: {error.filename}: {error.strerror}"
        ) from error
    check_never_begun(store.root)
    raise RunNotFoundError(f"no run {run_id!r} in {runs_dir} (runs there: {_known(runs_dir)})")


def _known(runs_dir: Path) -> str:
    """The runs of a folder, the last ones where there are many."""
    known = [run.info.run_id for run in view_runs(runs_dir)]
    left_out = f"{len(known) - MOST_NAMED} older ones, " if len(known) > MOST_NAMED else ""
    return left_out + ", ".join(known[-MOST_NAMED:]) or "none"


def every(runs_dir: Path, find: Callable[[Path, str], Found]) -> list[Found]:
    """The result of `find` for each run, oldest first. A run whose run.json is damaged or
    unreadable is skipped with a warning."""
    found = []
    for path in sorted(runs_dir.glob(f"[!.]*/{IDENTITY_FILE}")):
        try:
            found.append(find(runs_dir, path.parent.name))
        except StoreError as error:
            logger.warning("%s", error)
    return sorted(found, key=lambda run: run.info.created_at)


def check_never_begun(root: Path) -> None:
    """Raise `CorruptFileError` for a run that has lost its identity: another run must not continue
    from its steps."""
    if any((root / name).exists() for name in (MANIFEST_FILE, "steps", "checkpoints", "weights")):
        raise CorruptFileError(f"{root / IDENTITY_FILE} is missing; {NO_OTHER_COPY}")
