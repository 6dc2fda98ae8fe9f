"""`[evaluation]`: scores on held-out problems."""

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

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
    num_generations: int = Field(1, ge=1)
    """Completions of each problem. With more than one, which takes a `temperature`, a score is the
    mean over them (pass@1 where scores are 0 or 1), and `pass@k` of all of them is added."""
    functions: Functions | None = None
    """Reward functions that score evaluations, each with weight 1; `mortal promote` compares models
    by them, too. Default: those of `[rewards]`."""

    @model_validator(mode="after")
    def _completions_differ(self) -> Self:
        if self.num_generations > 1 and not self.temperature:
            raise ValueError(
                f"num_generations = {self.num_generations} with temperature = 0: all completions "
                "of a problem would be the same; set evaluation.temperature, such as 1.0"
            )
        return self

    @field_validator("functions")
    @classmethod
    def _some_function_scores(cls, functions: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if functions == ():
            raise ValueError("names no function; leave it out to score as in training")
        return functions
