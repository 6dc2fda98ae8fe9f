"""What the judges of this process belong to: the run that pays, and the others that ask the same
model."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.rewards.judge.ledger import Ledger
from mortal_steps.rewards.judge.limits import Allowed, Clock, Limits, ProcessLimits
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
    api_url: str | None = None
    """Address of a Prefect server. Limits are shared by all runs on it."""
    sharing: int = 1
    """Processes of the run that may ask the same model at a time. Where no server counts, each
    keeps to its part of the limits."""

    @property
    def patience_s(self) -> float:
        """How long the questions of one call may take together."""
        return SHARE * self.call_timeout_s


_place = JudgePlace()
_limits: dict[tuple[str, str, Allowed], Limits] = {}
_ledger: Ledger | None = None
_making = threading.Lock()


def use_place(place: JudgePlace) -> None:
    """Set the place of this process."""
    global _place, _ledger
    with _making:
        _place, _ledger = place, None
        _limits.clear()


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


def limits_of(model: str, base_url: str, allowed: Allowed, clock: Clock) -> Limits:
    """The limits of all judges of this process that ask this model within the same limits."""
    # Here for its HTTP client: every reward host has a place, and few have a judge.
    from mortal_steps.rewards.judge.shared_limits import SharedLimits, orchestrator

    with _making:
        key = (model, base_url, allowed)
        if key not in _limits:
            server = orchestrator(_place.api_url, os.environ)
            limited = allowed != Allowed()
            _limits[key] = (
                SharedLimits(
                    allowed,
                    clock,
                    server,
                    model=model,
                    base_url=base_url,
                    sharing=_place.sharing,
                )
                if server is not None and limited
                else ProcessLimits(allowed.shared_by(_place.sharing), clock)
            )
        return _limits[key]
