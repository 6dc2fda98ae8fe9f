"""`[evaluation]`: scores on held-out problems."""

from typing import Annotated

from pydantic import Field, field_validator

from mortal_steps.config.field_metadata import Decides
from mortal_steps.config.rewards import Functions
from mortal_steps.config.section import Section


class EvaluationConfig(Section):
    """`[evaluation]`: scores on held-out problems."""

    eval_steps: Annotated[int | None, Decides("eval_strategy", "eval_steps")] = Field(None, ge=0)
    """Evaluate every N steps and at the end; 0: never. Default: at the end, if `[data]` holds
    problems out."""
    on_start: bool = True
    """Also evaluate before the first step, unless there are no evaluations."""
    temperature: float = Field(0.0, ge=0)
    """Sampling temperature of evaluations; 0 decodes greedily. `rollout.top_p`, `top_k` and `min_p`
    do not act in evaluations."""
    functions: Functions | None = None
    """Reward functions that score evaluations, each with weight 1; `mortal promote` compares models
    by them, too. Default: those of `[rewards]`."""

    @field_validator("functions")
    @classmethod
    def _some_function_scores(cls, functions: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if functions == ():
            raise ValueError("names no function; leave it out to score as in training")
        return functions
