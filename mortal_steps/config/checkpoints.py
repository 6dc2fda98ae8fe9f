"""`[checkpoints]`: when the actor's complete state is saved."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mortal_steps.config.marks import Decides
from mortal_steps.config.section import Section


class CheckpointsConfig(Section):
    """`[checkpoints]`: when the actor's complete state is saved."""

    save_steps: Annotated[int, Decides("save_strategy", "save_steps")] = Field(100, ge=1)
    """Save a checkpoint every N steps and at the end."""
    keep_last: int = Field(2, ge=1)
    """Keep the newest N checkpoints."""
    keep_best: bool = True
    """Also keep the checkpoint with the best evaluation reward (without evaluations: the best
    training reward)."""
