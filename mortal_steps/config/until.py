"""`[training.until]`: what ends a run before its last step."""

from typing import Literal, Self

from pydantic import Field, model_validator

from mortal_steps.config.section import Section


class UntilConfig(Section):
    """`[training.until]`: what ends a run as complete before its last step; the first that is true
    does.

    It is looked at after each evaluation; without evaluations, where checkpoints are saved.
    `training.max_steps` stays the length that the learning rate's schedule goes by.
    """

    metric: str = ""
    """Score of the evaluations that `goal` and `patience` look at, such as `exact_match`. Default:
    the reward or, where rows are learned, the loss."""
    goal: float | None = None
    """What the score has to reach: at least this or, of a loss, at most."""
    by: Literal["mean", "interval"] = "mean"
    """`mean`: the score has to reach the goal in several `evaluations` in a row, for a single one
    may do so by luck. `interval`: the lower end of its 95 % interval has to reach it, once."""
    evaluations: int = Field(2, ge=1)
    """Evaluations in a row, with `by = "mean"`."""
    patience: int | None = Field(None, ge=1)
    """Evaluations in a row without a new best score."""
    max_tokens: int | None = Field(None, ge=1)
    """Sampled tokens or, where rows are learned, tokens of the rows."""
    max_rollouts: int | None = Field(None, ge=1)
    """Completions that were sampled and have a reward."""
    max_dollars: float | None = Field(None, gt=0)
    """Dollars for containers and judges, by the run's own estimate. The run ends as complete; at
    `compute.modal.max_cost` it stops instead."""
    max_hours: float | None = Field(None, gt=0)
    """Hours in which the run was driven."""

    @model_validator(mode="after")
    def _there_is_a_goal_for_the_metric(self) -> Self:
        if self.metric and self.goal is None and self.patience is None:
            raise ValueError(f"metric = {self.metric!r} is for goal or patience; set one of them")
        return self

    @property
    def judges(self) -> bool:
        """Whether it looks at the scores of evaluations."""
        return self.goal is not None or self.patience is not None

    @property
    def ends(self) -> bool:
        """Whether anything may end the run."""
        budgets = (self.max_tokens, self.max_rollouts, self.max_dollars, self.max_hours)
        return self.judges or any(budget is not None for budget in budgets)
