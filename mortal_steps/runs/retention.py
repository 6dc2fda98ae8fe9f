"""Decide which runs of a folder may go.

A run goes when its last step is older than it is kept for. It stays, however old, while

- something uses it, or its settings cannot be read (`_why_kept`),
- it is one of the protected, such as those that a production model comes from, or of those that a
  recipe names,
- a run that stays goes back to it: is a fork of it, or begins with its model or its data.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from mortal_steps.errors import MortalError
from mortal_steps.runs.lease import is_driven
from mortal_steps.runs.manifest import MANIFEST_FILE
from mortal_steps.runs.run import Run

DAY_S = 86400.0


def what_may_go(
    runs: Sequence[Run],
    *,
    now: float,
    keep_days: float | None,
    protected: Collection[str],
    used: Mapping[str, str] = MappingProxyType({}),
    made_with: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> tuple[list[Run], dict[str, str]]:
    """Decide at `now`, in seconds since the epoch.

    Returns the runs that may go, the newest first, so that a fork comes before the run it depends
    on; and by id why a run stays that is old enough. `keep_days` replaces that of each run's
    `[retention]`; `protected` are ids of runs that are kept, and `used` of more, each with the
    reason. `made_with` has by id the other runs whose models or data a run was made with.
    """
    by_id = {run.store.root.name: run for run in runs}
    needs = needs_of(runs, made_with)
    old = {run_id for run_id, run in by_id.items() if _is_old(run, now, keep_days)}
    reasons = {
        run_id: _why_kept(by_id[run_id], protected) or used.get(run_id)
        for run_id in by_id
        if run_id in old
    }
    kept = {run_id: why for run_id, why in reasons.items() if why is not None}
    staying = [run_id for run_id in by_id if run_id not in old or run_id in kept]
    while staying:
        run_id = staying.pop()
        for needed in needs[run_id] & old - kept.keys():
            kept[needed] = f"run {run_id}, which stays, goes back to it"
            staying.append(needed)
    going = [by_id[run_id] for run_id in old - kept.keys()]
    return sorted(going, key=lambda run: run.info.created_at, reverse=True), kept


def needs_of(runs: Sequence[Run], made_with: Mapping[str, Collection[str]]) -> dict[str, set[str]]:
    """Return by id the other runs that each goes back to."""
    by_uid = {run.info.uid: run.store.root.name for run in runs}
    needs: dict[str, set[str]] = {}
    for run in runs:
        run_id, parent = run.store.root.name, run.info.parent
        forked = by_uid.get(parent.uid) if parent else None
        needs[run_id] = {*made_with.get(run_id, ()), *filter(None, [forked])} - {run_id}
    return needs


def last_written(run: Run) -> float:
    """Return when the run last recorded its progress, in seconds since the epoch. A damaged
    manifest counts as written now."""
    begun = run.store.path(MANIFEST_FILE).exists()
    return run.manifest.updated_at if begun else run.info.created_at


def _is_old(run: Run, now: float, keep_days: float | None) -> bool:
    days = keep_days or _settings(run).get("retention", {}).get("keep_days")
    # A clock that was set back meanwhile makes no run older.
    return days is not None and now - max(last_written(run), run.info.created_at) > days * DAY_S


def _settings(run: Run) -> Mapping[str, Any]:
    """Return the run's settings; none where they cannot be read, and such a run stays."""
    try:
        return run.settings()
    except MortalError:
        return {}


def _why_kept(run: Run, protected: Collection[str]) -> str | None:
    root = run.store.root
    try:
        compute = run.config.compute
    except MortalError as error:
        return f"its settings cannot be read: {error}"
    if is_driven(run.store):
        return "it is going"
    if root.is_symlink():
        return "it is a link to another folder; remove both by hand"
    if not os.access(root, os.W_OK) or not os.access(root.parent, os.W_OK):
        return "you may not write there"
    complete = run.manifest.status == "completed" and run.manifest.final is not None
    if compute.volume is not None and not complete:
        return f"it may go on from the Volume {compute.volume}, where `mortal gc` does not look"
    return "it is protected" if root.name in protected else None
