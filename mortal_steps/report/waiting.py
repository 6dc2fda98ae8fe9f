"""Says in words what a run is waiting for."""

from __future__ import annotations

import time

from mortal_steps.report.units import duration
from mortal_steps.runs.activity import Activity, Work, read_activity
from mortal_steps.runs.run import Run

WORTH_A_WORD_S = 2.0
"""Seconds after which the text says how long something has taken."""
MOST_TOLD = 2
"""The most stages that are listed side by side."""
AT_THE_START = {
    "warm_start": "making the starting model",
    "start_workers": "starting the workers",
    "save_final": "saving the final model",
}


def waits_for(run: Run, status: str, volume: str | None = None) -> str:
    """What a run of this status waits for; empty where it has ended in order or tells nothing.

    `volume`: the Modal Volume that `run` is a copy from.
    """
    if status == "running":
        activity = read_activity(run.store.root)
        return told(activity, time.time()) if activity else ""
    if status in ("interrupted", "stopped", "failed"):
        return f"mortal resume {run.info.run_id}" + (f" --volume {volume}" if volume else "")
    return ""


def told(activity: Activity, now: float) -> str:
    """What is under way, such as `generate 3/4 shards of step 12, for 40 s`."""
    if activity.paused is not None and activity.paused_since is not None:
        return _with_length(f"paused: {activity.paused}", now - activity.paused_since)
    works = [_with_length(_name(work), now - work.since) for work in activity.work[:MOST_TOLD]]
    more = len(activity.work) - len(works)
    return "; ".join([*works, *([f"{more} more"] if more else [])])


def _name(work: Work) -> str:
    if work.stage in AT_THE_START:
        return AT_THE_START[work.stage]
    if work.stage == "sync_weights":
        return f"sync_weights of version {work.step}"
    shards = f" {work.done}/{work.of} shards" if work.of > 1 else ""
    if work.stage == "evaluate":
        return f"evaluate after step {work.step}: {work.method}{shards}"
    if work.stage == "checkpoint":
        return f"checkpoint of step {work.step}"
    return f"{work.stage}{shards} of step {work.step + 1}"


def _with_length(what: str, seconds: float) -> str:
    return f"{what}, for {duration(seconds)}" if seconds >= WORTH_A_WORD_S else what
