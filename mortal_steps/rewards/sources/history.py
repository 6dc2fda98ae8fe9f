"""What a run was scored with, as its directory tells: reward_sources.json."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mortal_steps.errors import CorruptFileError
from mortal_steps.store import RunStore

SOURCES_FILE = "reward_sources.json"
MISSING = "missing"


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardSources:
    """What scores are made with."""

    files: Mapping[str, str]
    """sha256 of each file by its path, from the folder that the run began in where it is below it;
    `missing` for a function's file that is not there."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Version of each installed package that functions are in or import, by its name; empty where
    the functions run in another environment than the flow."""

    def digest(self) -> str:
        """Of the files; short, hexadecimal, for people to copy."""
        content = json.dumps(dict(self.files), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def changes_to(self, other: RewardSources) -> list[str]:
        """What is different in `other`, one phrase per file or package."""
        return [*self.edits_to(other), *self.upgrades_to(other)]

    def edits_to(self, other: RewardSources) -> list[str]:
        """Which files are different in `other`, one phrase each."""
        found = []
        for path in sorted(self.files.keys() | other.files.keys()):
            before, now = self.files.get(path), other.files.get(path)
            if before != now:
                how = {MISSING: "is missing", None: "is not used any more"}.get(now, "was altered")
                found.append(f"{path} {how if before is not None else 'is new'}")
        return found

    def upgrades_to(self, other: RewardSources) -> list[str]:
        """Which packages have another version in `other`, one phrase each."""
        return [
            f"{name} was {self.packages[name]}, now {other.packages[name]}"
            for name in sorted(self.packages.keys() & other.packages.keys())
            if self.packages[name] != other.packages[name]
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredWith:
    """Sources, and since when they score."""

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
    """What a run was scored with, oldest first; empty for one that began without noting it.

    Raises `CorruptFileError` for damage.
    """
    try:
        found = store.find_record(SOURCES_FILE, SourceHistory)
    except CorruptFileError as error:
        raise CorruptFileError(
            f"{error}; it records which reward functions scored the run: restore it from a copy, "
            "remove it so that the run records the present ones, or train again under another "
            "--run-id"
        ) from None
    return found[1].entries if found else ()
