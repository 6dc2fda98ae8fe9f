"""What a run tells of itself while it goes on: a class for each kind of fact, and a line here."""

from __future__ import annotations

from collections.abc import Callable

from mortal_steps.report.watchers.base import Watched, Watcher
from mortal_steps.report.watchers.resources import Budget, StepSlow
from mortal_steps.report.watchers.rewards import (
    EvaluationRegressed,
    RewardCollapsed,
    RewardFlat,
    RewardMasked,
    RewardMissing,
)

WATCHERS: tuple[Callable[[Watched], Watcher], ...] = (
    RewardCollapsed,
    EvaluationRegressed,
    RewardMasked,
    RewardFlat,
    RewardMissing,
    StepSlow,
    Budget,
)
