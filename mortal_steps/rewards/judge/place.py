"""The run that the judges of this process belong to, and that pays for them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.rewards.judge.ledger import Ledger
from mortal_steps.store.identity import IDENTITY_FILE

SHARE = 0.8
"""Part of a call's time limit that a judge may use, so that it can report itself what it waited
for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgePlace:
    """What a process is told about the run that it scores."""

    run_dir: str | None = None
    """The run directory, which keeps answers and costs once the run exists."""
    call_timeout_s: float = 60.0
    """Time limit of one call of a reward function."""

    @property
    def patience_s(self) -> float:
        """How long the questions of one call may take together."""
        return SHARE * self.call_timeout_s


_place = JudgePlace()
_ledger: Ledger | None = None
_making = threading.Lock()


def use_place(place: JudgePlace) -> None:
    """Set the place of this process."""
    global _place, _ledger
    with _making:
        _place, _ledger = place, None


def place() -> JudgePlace:
    """The place of this process."""
    return _place


def shared_ledger() -> Ledger:
    """The ledger of all judges of this process."""
    global _ledger
    with _making:
        if _ledger is None:
            # A dry run scores before there is a run directory, and must not begin one.
            there = _place.run_dir is not None and (Path(_place.run_dir) / IDENTITY_FILE).exists()
            _ledger = Ledger(Path(_place.run_dir) if there and _place.run_dir else None)
        return _ledger
