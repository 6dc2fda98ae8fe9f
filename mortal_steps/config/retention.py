"""`[retention]`: what `mortal gc` may remove of a run, and when."""

from __future__ import annotations

from pydantic import Field

from mortal_steps.config.section import Section


class RetentionConfig(Section):
    """`[retention]`: what `mortal gc` may remove of a run. By default it removes nothing."""

    keep_days: float | None = Field(None, gt=0)
    """Keep the whole run until its last step is N days old, whether it was completed or not.
    Default: for ever."""
    keep_rollouts: int | None = Field(None, ge=1)
    """Once the run is complete, keep the prompts, completions and scores of its newest N steps;
    default: of all steps."""
