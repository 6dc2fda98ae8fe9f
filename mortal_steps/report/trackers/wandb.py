"""Weights & Biases: run folders below `tracking/wandb`, or below WANDB_DIR.

All attempts of a run are one W&B run: its id follows from the run's. Where W&B is out of reach by
choice (WANDB_MODE=offline, or no key), each process writes a folder of its own, and `wandb sync`
makes one run of them; the steps in those folders are what W&B holds. Online, W&B's server tells how
far it is when the run is resumed.

W&B keeps the newest steps in memory, in a process of its own, so a kill may lose some of them in
its files. They are in the run's logs, and the next process begins with them.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import wandb

from mortal_steps.report.trackers.base import COLUMNS, SAMPLES, Entry, TrackedRun
from mortal_steps.report.trackers.wandb_files import read_history
from mortal_steps.report.trackers.wandb_mode import chosen_mode

SETTINGS = {
    "silent": True,
    "console": "off",
    # What would be told of this process and its machine is not about the run's workers.
    "x_disable_stats": True,
    "x_disable_meta": True,
    "x_save_requirements": False,
    "disable_git": True,
}


class WandbTracker:
    """See `Tracker`."""

    def __init__(self, run: TrackedRun) -> None:
        os.environ.pop("WANDB_SERVICE", None)  # of another process, which may end before this one
        self._run = run
        self._mode = chosen_mode(os.environ)
        self.folder = Path(os.environ.get("WANDB_DIR") or run.folder)
        self._open: Any = None
        if self._mode == "online":
            self._open = self._begin()

    def last_step(self) -> int | None:
        """See `Tracker`; so for all."""
        if self._open is not None:
            first: int = self._open.step  # the one that W&B's server expects next
            return first - 1 if self._open.resumed else None
        histories = [
            read_history(path)
            for path in self.folder.glob(f"wandb/offline-run-*-{self._run.id}/*.wandb")
        ]
        ours = [told.steps for told in histories if told.project == self._run.project]
        return max((step for steps in ours for step in steps), default=None)

    def log(self, entry: Entry) -> None:
        if self._open is None:
            self._remove_empty()
            self._open = self._begin()
        values: dict[str, Any] = dict(entry.values)
        if entry.samples:
            rows = [list(row) for row in entry.samples]
            values[SAMPLES] = wandb.Table(columns=list(COLUMNS), data=rows)
        self._open.log(values, step=entry.step, commit=True)

    def flush(self) -> None:
        """W&B writes and uploads when it wants to."""

    def close(self) -> None:
        if self._open is not None:
            self._open.finish()

    def _begin(self) -> Any:
        run = self._run
        self.folder.mkdir(parents=True, exist_ok=True)
        return wandb.init(
            mode=self._mode,
            id=run.id,
            resume="allow" if self._mode == "online" else None,
            dir=str(self.folder),
            project=run.project,
            group=run.group,
            name=run.name,
            tags=list(run.tags),
            config=dict(run.config),
            settings=wandb.Settings(**SETTINGS),
        )

    def _remove_empty(self) -> None:
        """A kill leaves folders without a step, with which `wandb sync` could do nothing."""
        for path in self.folder.glob(f"wandb/offline-run-*-{self._run.id}/*.wandb"):
            if not read_history(path).steps:
                shutil.rmtree(path.parent)
