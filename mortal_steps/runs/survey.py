"""Collects what the rules in retention.py need to know about every run in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mortal_steps.config import RunConfig
from mortal_steps.errors import MortalError
from mortal_steps.runs.lease import is_driven
from mortal_steps.runs.manifest import MANIFEST_FILE
from mortal_steps.runs.retention import KnownRun
from mortal_steps.runs.run import Run


def survey(
    runs: Sequence[Run], *, keep_days: float | None = None, keep_rollouts: int | None = None
) -> list[KnownRun]:
    """What is known of `runs`. Numbers given here replace those in each run's `[retention]`."""
    by_uid = {run.info.uid: run.store.root.name for run in runs}
    return [_known(run, by_uid, keep_days, keep_rollouts) for run in runs]


def last_written(run: Run) -> float:
    """When the run last recorded its progress, in seconds since the epoch. A damaged manifest
    counts as written now."""
    begun = run.store.path(MANIFEST_FILE).exists()
    return run.manifest.updated_at if begun else run.info.created_at


def _counts_from(run: Run) -> float:
    """What its age counts from: a clock that was set back meanwhile makes no run older."""
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
    """The run that it was forked from, and those whose files it begins with."""
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
