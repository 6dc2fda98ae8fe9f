"""Which runs of a folder may go: rules over what is known of each, nothing else.

A run goes when its last step is older than it is kept for. It stays, however old, while

- something uses it, or cannot be told about it (`KnownRun.untouchable`),
- it is one of the protected, such as those that a production model comes from,
- a run that stays goes back to it: is a fork of it, or begins with its model or its data.

The rollouts of a run that stays may go without it, once it is complete.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

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
