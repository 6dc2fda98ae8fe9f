"""Which runs of a folder may go: what is known of each, and the rules over that.

A run goes when its last step is older than it is kept for. It stays, however old, while

- something uses it, or cannot be told about it (`KnownRun.untouchable`),
- it is one of the protected, such as those that a production model comes from,
- a run that stays goes back to it: is a fork of it, or begins with its model or its data.

The rollouts of a run that stays may go without it, once it is complete.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mortal_steps.config import RunConfig
from mortal_steps.errors import MortalError
from mortal_steps.runs.lease import is_driven
from mortal_steps.runs.manifest import MANIFEST_FILE
from mortal_steps.runs.run import Run

DAY_S = 86400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownRun:
    """What the retention rules need to know about a run."""

    run_id: str
    """Name of its folder."""
    updated_at: float
    """When it last wrote down where it stands, in seconds since the epoch."""
    complete: bool
    """Whether it has reached its end."""
    goes_back_to: frozenset[str] = frozenset()
    """Ids of the runs that it depends on."""
    untouchable: str | None = None
    """Why nothing of it may be removed; None if something may."""
    keep_days: float | None = None
    """Days that it is kept after its last step; None: for ever."""
    keep_rollouts: int | None = None
    """Number of newest steps whose rollouts are kept once it is complete; None: all of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What may be removed of the runs in a folder."""

    remove: tuple[str, ...]
    """Ids of runs that may be removed; a fork comes before the run it depends on."""
    prune: Mapping[str, int]
    """For runs that stay, by id: the number of newest steps whose rollouts are kept."""
    kept: Mapping[str, str] = field(default_factory=dict)
    """Why a run that is old enough to be removed stays, by id."""


def what_may_go(
    runs: Sequence[KnownRun], *, now: float, protected: Collection[str] = ()
) -> Decision:
    """Decide at `now`, in seconds since the epoch; `protected` are ids of runs that are kept
    whole."""
    known = {run.run_id: run for run in runs}
    old = {run.run_id for run in runs if _is_old(run, now)}
    kept = {run.run_id: _why_kept(run, protected) for run in runs if run.run_id in old}
    reasons = {run_id: why for run_id, why in kept.items() if why is not None}
    staying = [run_id for run_id in known if run_id not in old or run_id in reasons]
    while staying:
        run_id = staying.pop()
        for needed in known[run_id].goes_back_to & old - reasons.keys():
            reasons[needed] = f"run {run_id}, which stays, goes back to it"
            staying.append(needed)
    prune = {
        run.run_id: run.keep_rollouts
        for run in runs
        if run.keep_rollouts is not None
        and run.complete
        and run.untouchable is None
        and run.run_id not in protected
        and (run.run_id not in old or run.run_id in reasons)
    }
    return Decision(remove=_forks_first(known, old - reasons.keys()), prune=prune, kept=reasons)


def _is_old(run: KnownRun, now: float) -> bool:
    return run.keep_days is not None and now - run.updated_at > run.keep_days * DAY_S


def _why_kept(run: KnownRun, protected: Collection[str]) -> str | None:
    if run.untouchable is not None:
        return run.untouchable
    return "it is protected" if run.run_id in protected else None


def _forks_first(known: Mapping[str, KnownRun], going: Collection[str]) -> tuple[str, ...]:
    """Order the runs so that a kill in between leaves no run without the runs that it depends
    on."""
    ordered: list[str] = []

    def add(run_id: str) -> None:
        for other in known:
            if other in going and other not in ordered and run_id in known[other].goes_back_to:
                add(other)
        if run_id not in ordered:
            ordered.append(run_id)

    for run_id in known:
        if run_id in going:
            add(run_id)
    return tuple(ordered)


def survey(
    runs: Sequence[Run], *, keep_days: float | None = None, keep_rollouts: int | None = None
) -> list[KnownRun]:
    """Return what is known of `runs`. Numbers given here replace those in each run's
    `[retention]`."""
    by_uid = {run.info.uid: run.store.root.name for run in runs}
    return [_known(run, by_uid, keep_days, keep_rollouts) for run in runs]


def last_written(run: Run) -> float:
    """Return when the run last recorded its progress, in seconds since the epoch. A damaged
    manifest counts as written now."""
    begun = run.store.path(MANIFEST_FILE).exists()
    return run.manifest.updated_at if begun else run.info.created_at


def _counts_from(run: Run) -> float:
    """Return what its age counts from: a clock that was set back meanwhile makes no run older."""
    return max(last_written(run), run.info.created_at)


def _known(
    run: Run, by_uid: Mapping[str, str], keep_days: float | None, keep_rollouts: int | None
) -> KnownRun:
    root = run.store.root
    try:
        config = run.config
    except MortalError as error:
        return KnownRun(
            run_id=root.name,
            updated_at=_counts_from(run),
            complete=False,
            goes_back_to=frozenset(_parent(run, by_uid)),
            untouchable=f"its settings cannot be read: {error}",
            keep_days=keep_days,
        )
    complete = run.manifest.status == "completed" and run.manifest.final is not None
    return KnownRun(
        run_id=root.name,
        updated_at=_counts_from(run),
        complete=complete,
        goes_back_to=frozenset(_goes_back_to(run, config, by_uid)) - {root.name},
        untouchable=_why_untouchable(run, config, complete),
        keep_days=keep_days or config.retention.keep_days,
        keep_rollouts=keep_rollouts or config.retention.keep_rollouts,
    )


def _goes_back_to(run: Run, config: RunConfig, by_uid: Mapping[str, str]) -> Iterator[str]:
    """Yield the run that it was forked from, and those whose files it begins with."""
    yield from _parent(run, by_uid)
    runs_dir = run.store.root.parent.resolve()
    data = config.data
    for named in (config.model.name_or_path, data.source, *data.eval_sources.values()):
        place = Path(run.info.working_dir, named).resolve()
        if place.is_relative_to(runs_dir) and place != runs_dir:
            yield place.relative_to(runs_dir).parts[0]


def _parent(run: Run, by_uid: Mapping[str, str]) -> Iterator[str]:
    parent = run.info.parent
    if parent is not None and parent.uid in by_uid:
        yield by_uid[parent.uid]


def _why_untouchable(run: Run, config: RunConfig, complete: bool) -> str | None:
    root = run.store.root
    if is_driven(run.store):
        return "it is going"
    if root.is_symlink():
        return "it is a link to another folder; remove both by hand"
    if not os.access(root, os.W_OK) or not os.access(root.parent, os.W_OK):
        return "you may not write there"
    if config.compute.backend == "modal" and not complete:
        volume = config.compute.modal.volume
        return f"it may go on from the Volume {volume}, where `mortal gc` does not look"
    return None
