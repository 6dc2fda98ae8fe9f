"""`[evaluation]`: scores on held-out problems."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mortal_steps.config.marks import Affects, Decides
from mortal_steps.config.section import Section


class EvaluationConfig(Section):
    """`[evaluation]`: scores on held-out problems."""

    eval_steps: Annotated[int, Affects.FINGERPRINT, Decides("eval_strategy", "eval_steps")] = Field(
        0, ge=0
    )
    """Evaluate every N steps and at the end; 0: never."""
    on_start: Annotated[bool, Affects.FINGERPRINT] = True
    """Also evaluate before the first step."""
    temperature: Annotated[float, Affects.SCORES] = Field(0.0, ge=0)
    """Sampling temperature of evaluations; 0 decodes greedily."""
