"""The record of what has scored a run, and since when."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mortal_steps.errors import CorruptFileError
from mortal_steps.store import RunStore
from mortal_steps.system.libraries import changes

SOURCES_FILE = "reward_sources.json"
MISSING = "missing"


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardSources:
    """What scores are made with."""

    files: Mapping[str, str]
    """sha256 of each file by its path, from the folder that the run began in where it is below it;
    `missing` for a function's file that is not there."""
    packages: Mapping[str, str] | None = None
    """Versions of the packages that environments are in, by name; None where they are not asked
    for: there are none, or they are in containers."""
    code: Mapping[str, str] | None = None
    """As `files`, of what samples and trains; None where that is MORTAL's own, and where a version
    that did not ask for it noted the rest."""

    def digest(self) -> str:
        """Return a digest of all that; short, hexadecimal, for people to copy."""
        whole = {**self.files, **(self.packages or {}), **(self.code or {})}
        content = json.dumps(whole, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def tells_more_than(self, other: RewardSources) -> bool:
        """Return whether it has something that `other` was not asked for."""
        pairs = ((self.packages, other.packages), (self.code, other.code))
        return any(mine is not None and theirs is None for mine, theirs in pairs)

    def changes_to(self, other: RewardSources) -> list[str]:
        """Return what is different in `other`, one phrase each."""
        found = []
        mine, theirs = self.files, other.files
        if self.code is not None and other.code is not None:
            mine, theirs = {**mine, **self.code}, {**theirs, **other.code}
        for path in sorted(mine.keys() | theirs.keys()):
            before, now = mine.get(path), theirs.get(path)
            if before != now:
                how = {MISSING: "is missing", None: "is not used any more"}.get(now, "was altered")
                found.append(f"{path} {how if before is not None else 'is new'}")
        if self.packages is not None and other.packages is not None:
            found += changes(self.packages, other.packages)
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredWith:
    step: int
    """Train steps done when they were noted: what was not scored by then, they score."""
    sources: RewardSources
    noted_at: float
    """Seconds since the epoch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceHistory:
    """Record of the sources of a run, the present ones last."""

    entries: tuple[ScoredWith, ...]


def find_history(store: RunStore) -> Sequence[ScoredWith]:
    """Return what scored a run, oldest first; empty if not noted. Raises `CorruptFileError`."""
    try:
        found = store.find_record(SOURCES_FILE, SourceHistory)
    except CorruptFileError as error:
        raise CorruptFileError(
            f"{error}; it records which reward functions scored the run: restore it from a copy, "
            "remove it so that the run records the present ones, or train again under another "
            "--run-id"
        ) from None
    return found[1].entries if found else ()


def accepted_last(history: Sequence[ScoredWith]) -> str | None:
    """Return the digest of the sources that were accepted last in place of others; None where a run
    has those that it began with."""
    pairs = itertools.pairwise(each.sources for each in history)
    accepted = [now.digest() for before, now in pairs if before.changes_to(now)]
    return accepted[-1] if accepted else None


def write_history(
    store: RunStore, history: Sequence[ScoredWith], now: RewardSources, step: int
) -> None:
    """Add the sources that score from a step on."""
    entry = ScoredWith(step=step, sources=now, noted_at=time.time())
    store.write_record(SOURCES_FILE, SourceHistory(entries=(*history, entry)), SourceHistory)
