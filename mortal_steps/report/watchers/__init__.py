"""What a run tells of itself while it goes on: one file for each kind of fact, and a line here."""

from __future__ import annotations

from collections.abc import Callable

from mortal_steps.report.watchers.base import Watched, Watcher
from mortal_steps.report.watchers.budget import Budget
from mortal_steps.report.watchers.evaluation_regressed import EvaluationRegressed
from mortal_steps.report.watchers.reward_collapsed import RewardCollapsed
from mortal_steps.report.watchers.reward_flat import RewardFlat
from mortal_steps.report.watchers.reward_masked import RewardMasked
from mortal_steps.report.watchers.reward_missing import RewardMissing
from mortal_steps.report.watchers.step_slow import StepSlow

WATCHERS: tuple[Callable[[Watched], Watcher], ...] = (
    RewardCollapsed,
    EvaluationRegressed,
    RewardMasked,
    RewardFlat,
    RewardMissing,
    StepSlow,
    Budget,
)
