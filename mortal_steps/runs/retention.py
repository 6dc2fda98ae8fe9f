"""Decide which runs of a folder may go.

A run goes when its last step is older than it is kept for. It stays, however old, while

- something uses it, or its settings cannot be read (`_why_untouchable`),
- it is one of the protected, such as those that a production model comes from,
- a run that stays goes back to it: is a fork of it, or begins with its model or its data.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.config import RunConfig
from mortal_steps.errors import MortalError
from mortal_steps.runs.lease import is_driven
from mortal_steps.runs.manifest import MANIFEST_FILE
from mortal_steps.runs.run import Run

DAY_S = 86400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What may be removed of the runs in a folder."""

    remove: tuple[Run, ...]
    """The newest first: a fork comes before the run it depends on."""
    kept: Mapping[str, str]
    """Why a run that is old enough to be removed stays, by id."""


def what_may_go(
    runs: Sequence[Run], *, now: float, keep_days: float | None, protected: Collection[str]
) -> Decision:
    """Decide at `now`, in seconds since the epoch.

    `keep_days` replaces that of each run's `[retention]`; `protected` are ids of runs that are
    kept.
    """
    by_id = {run.store.root.name: run for run in runs}
    by_uid = {run.info.uid: run_id for run_id, run in by_id.items()}
    needs = {run_id: set(_goes_back_to(run, by_uid)) - {run_id} for run_id, run in by_id.items()}
    old = {run_id for run_id, run in by_id.items() if _is_old(run, now, keep_days)}
    reasons = {run_id: _why_kept(by_id[run_id], protected) for run_id in by_id if run_id in old}
    kept = {run_id: why for run_id, why in reasons.items() if why is not None}
    staying = [run_id for run_id in by_id if run_id not in old or run_id in kept]
    while staying:
        run_id = staying.pop()
        for needed in needs[run_id] & old - kept.keys():
            kept[needed] = f"run {run_id}, which stays, goes back to it"
            staying.append(needed)
    going = [by_id[run_id] for run_id in old - kept.keys()]
    going.sort(key=lambda run: run.info.created_at, reverse=True)
    return Decision(remove=tuple(going), kept=kept)


def last_written(run: Run) -> float:
    """Return when the run last recorded its progress, in seconds since the epoch. A damaged
    manifest counts as written now."""
    begun = run.store.path(MANIFEST_FILE).exists()
    return run.manifest.updated_at if begun else run.info.created_at


def _is_old(run: Run, now: float, keep_days: float | None) -> bool:
    config = _config(run)
    days = keep_days or (config.retention.keep_days if isinstance(config, RunConfig) else None)
    # A clock that was set back meanwhile makes no run older.
    return days is not None and now - max(last_written(run), run.info.created_at) > days * DAY_S


def _config(run: Run) -> RunConfig | MortalError:
    try:
        return run.config
    except MortalError as error:
        return error


def _goes_back_to(run: Run, by_uid: Mapping[str, str]) -> Iterator[str]:
    """Yield the run that it was forked from, and those whose files it begins with."""
    parent = run.info.parent
    if parent is not None and parent.uid in by_uid:
        yield by_uid[parent.uid]
    runs_dir, config = run.store.root.parent.resolve(), _config(run)
    if not isinstance(config, RunConfig):
        return
    data = config.data
    for named in (config.model.name_or_path, data.source, *data.eval_sources.values()):
        path = Path(run.info.working_dir, named).resolve()
        if path.is_relative_to(runs_dir) and path != runs_dir:
            yield path.relative_to(runs_dir).parts[0]


def _why_kept(run: Run, protected: Collection[str]) -> str | None:
    return _why_untouchable(run) or (
        "it is protected" if run.store.root.name in protected else None
    )


def _why_untouchable(run: Run) -> str | None:
    root, config = run.store.root, _config(run)
    if not isinstance(config, RunConfig):
        return f"its settings cannot be read: {config}"
    if is_driven(run.store):
        return "it is going"
    if root.is_symlink():
        return "it is a link to another folder; remove both by hand"
    if not os.access(root, os.W_OK) or not os.access(root.parent, os.W_OK):
        return "you may not write there"
    complete = run.manifest.status == "completed" and run.manifest.final is not None
    if config.compute.backend == "modal" and not complete:
        volume = config.compute.modal.volume
        return f"it may go on from the Volume {volume}, where `mortal gc` does not look"
    return None
