"""How a run stands just now and what it waits for, read from little: for lists that are looked at
again and again."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from mortal_steps.report.summary import REWARD_WINDOW
from mortal_steps.runs.lease import read_lease
from mortal_steps.runs.logs import METRICS, last_lines
from mortal_steps.runs.run import Run

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStanding:
    """One line of `mortal status`."""

    run_id: str
    status: str
    """As in `RunSummary`."""
    step: int
    """Train steps done."""
    max_steps: int
    reward: float | None
    """Mean training reward of the last 20 steps."""
    held_out: float | None
    """Reward of the last evaluation."""
    pace_s: float | None
    """Seconds per step, where a process trains it."""
    eta_s: float | None
    """Seconds to the last step at that pace."""
    waits_for: str
    """The command that it needs to go on; empty where it needs none."""
    created_at: float
    """Seconds since the epoch."""
    updated_at: float
    """When it last noted where it stands."""
    pid: int | None
    """The process on this machine that drives it."""


def standing(run: Run, volume: str | None = None) -> RunStanding:
    """Read the end of the run's log, its manifest, and what its driver says of itself.

    `volume`: the Modal Volume that `run` is a copy from; the pace is known where the driver is.
    """
    manifest, status = run.manifest, run.status()
    rows = last_lines(run.store.path(METRICS), REWARD_WINDOW, needs=("step", "reward"))
    rewards = [row["reward"] for row in rows if row["reward"] is not None]
    pace_s = manifest.pace_s if status == "running" else None
    left = run.info.num_steps - manifest.step
    return RunStanding(
        run_id=run.info.run_id,
        status=status,
        step=manifest.step,
        max_steps=run.info.num_steps,
        reward=sum(rewards) / len(rewards) if rewards else None,
        held_out=manifest.evaluation.metrics.get("reward") if manifest.evaluation else None,
        pace_s=pace_s,
        eta_s=None if pace_s is None else pace_s * left,
        waits_for=waits_for(run, status, volume),
        created_at=run.info.created_at,
        updated_at=manifest.updated_at,
        pid=_driver(run) if status == "running" else None,
    )


def _driver(run: Run) -> int | None:
    lease = read_lease(run.store)
    return lease.pid if lease and lease.is_here() and lease.holds() else None


def standings(runs: Iterable[Run]) -> list[RunStanding]:
    """Of those that can be read, as `in_order`; one that cannot is only warned of."""
    found = []
    for run in runs:
        try:
            found.append(standing(run))
        except OSError as error:
            logger.warning("run %s cannot be read: %s", run.info.run_id, error)
    return in_order(found)


def in_order(found: Iterable[RunStanding]) -> list[RunStanding]:
    """The running ones first, then the last changed."""
    return sorted(found, key=lambda each: (each.status != "running", -each.updated_at))


def waits_for(run: Run, status: str, volume: str | None = None) -> str:
    """Return the command that a run of this status needs to go on; empty where it needs none.

    `volume`: the Modal Volume that `run` is a copy from.
    """
    if status in ("interrupted", "stopped", "failed"):
        return f"mortal resume {run.info.run_id}" + (f" --volume {volume}" if volume else "")
    return ""
