"""`[alerts]`: when a run tells somebody that something is wrong with it."""

from __future__ import annotations

from pydantic import Field

from mortal_steps.config.section import Section


class AlertsConfig(Section):
    """`[alerts]`: when a run reports that something is wrong with it. It goes on all the same."""

    reward_window: int = Field(10, ge=2)
    """Steps of the moving mean of the training reward that `reward_drop` is about."""
    reward_drop: float = Field(0.5, gt=0)
    """The reward has collapsed when its moving mean is below its best by more than this part of the
    best, and by more than chance (six standard errors), for `reward_drop_steps` steps in a row."""
    reward_drop_steps: int = Field(5, ge=1)
    """See `reward_drop`."""
    masked_share: float = Field(0.1, ge=0, le=1)
    """Report when more than this share of a step's completions is masked, because a reward function
    failed on them."""
    evaluation_drop: float = Field(0.1, gt=0)
    """An evaluation has regressed when its reward is below the best one's by more than this part of
    the best."""
    slow_step_factor: float = Field(5.0, gt=1)
    """A step is slow when it takes longer than this factor times the median of the 50 steps before
    it. At least ten steps of the same process are needed for that. Evaluations and checkpoints do
    not count."""
    slow_step_s: float = Field(30.0, ge=0)
    """A step that takes less than this many seconds is never slow."""
    cost_share: float = Field(0.8, gt=0, le=1)
    """Report when this share of `compute.modal.max_cost` is spent."""
    quiet_steps: int = Field(50, ge=0)
    """A condition that persists, or returns within this many steps, is reported once."""
