"""Weights & Biases: run folders below `tracking/wandb`, or below WANDB_DIR.

All attempts of a run are one W&B run: its id follows from the run's. W&B's server tells how far it
is when the run is resumed. Where W&B is out of reach by choice (WANDB_MODE=offline, or no key),
each process writes the whole run into a folder of its own, in place of the one before it: W&B keeps
the newest steps in memory, and nothing tells which of them a kill has lost.
"""

import netrc
import os
import shutil
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import wandb

from mortal_steps.report.trackers.base import COLUMNS, SAMPLES, Entry, TrackedRun

SETTINGS = {
    "silent": True,
    "console": "off",
    # What W&B would record of this process and its machine is not about the run's workers.
    "x_disable_stats": True,
    "x_disable_meta": True,
    "x_save_requirements": False,
    "disable_git": True,
}


class WandbTracker:
    def __init__(self, run: TrackedRun) -> None:
        os.environ.pop("WANDB_SERVICE", None)  # of another process, which may end before this one
        self._run = run
        self._mode = chosen_mode(os.environ)
        self.folder = Path(os.environ.get("WANDB_DIR") or run.folder)
        self._open: Any = None
        if self._mode == "online":
            self._open = self._begin()

    def last_step(self) -> int | None:
        if self._open is not None:
            first: int = self._open.step  # the one that W&B's server expects next
            return first - 1 if self._open.resumed else None
        return None

    def log(self, entry: Entry) -> None:
        if self._open is None:
            self._remove_older()
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

    def _remove_older(self) -> None:
        """Remove what earlier processes have written: it is in the new folder, too."""
        for folder in self.folder.glob(f"wandb/offline-run-*-{self._run.id}"):
            shutil.rmtree(folder)


Mode = Literal["online", "offline", "disabled"]

CLOUD = "https://api.wandb.ai"


def chosen_mode(environment: Mapping[str, str]) -> Mode:
    """Return what WANDB_MODE says; without it, online where there is a key."""
    mode = environment.get("WANDB_MODE", "")
    if mode in ("offline", "dryrun"):
        return "offline"
    if mode == "disabled":
        return "disabled"
    return "online" if mode or has_key(environment) else "offline"


def has_key(environment: Mapping[str, str]) -> bool:
    """Return whether W&B finds credentials in the environment or in ~/.netrc."""
    if environment.get("WANDB_API_KEY") or environment.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    host = urllib.parse.urlsplit(environment.get("WANDB_BASE_URL", CLOUD)).hostname or ""
    try:
        return netrc.netrc(environment.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
