"""`[evaluation]`: scores on held-out problems."""

from collections.abc import Collection, Mapping
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from mortal_steps.config.data import DataConfig, SetName
from mortal_steps.config.eval_sets import AnyEvalSet, Harness, ProblemSet
from mortal_steps.config.field_metadata import Decides
from mortal_steps.config.rewards import Functions
from mortal_steps.config.section import Section
from mortal_steps.extensions import nearest


class EvaluationConfig(Section):
    """`[evaluation]`: scores on held-out problems."""

    eval_steps: Annotated[int | None, Decides("eval_strategy", "eval_steps")] = Field(None, ge=0)
    """Evaluate every N steps and at the end; 0: never. Default: at the end, if `[data]` holds
    problems out or there is a harness."""
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
    decides: str = ""
    """The set whose reward is the evaluation's `reward`: checkpoints are compared by it,
    `mortal promote` decides by it, and so does `[training.until]` without a `metric`. Default: the
    mean over all held-out problems but those of sets with a table in `sets`."""
    sets: dict[SetName, AnyEvalSet] = Field(default_factory=dict)
    """Sets with settings of their own, by name: `[evaluation.sets.NAME]` for one of
    `data.eval_sets`, with rewards, sampling, `num_generations` and `num_problems` of its own, or
    with a `type` for a harness, which asks the policy itself (docs/evaluation.md)."""

    @model_validator(mode="after")
    def _completions_differ(self) -> Self:
        found = {"": (self.num_generations, self.temperature)}
        for name, each in self.problem_sets.items():
            count = each.num_generations or self.num_generations
            heat = self.temperature if each.temperature is None else each.temperature
            found[f"sets.{name}."] = count, heat
        for table, (count, temperature) in found.items():
            if count > 1 and not temperature:
                raise ValueError(
                    f"{table}num_generations = {count} with temperature = 0: all completions of a "
                    f"problem would be the same; set evaluation.{table}temperature, such as 1.0"
                )
        return self

    @model_validator(mode="after")
    def _sets_are_in_evaluations(self) -> Self:
        for name, each in self.sets.items():
            if each.eval_steps and each.eval_steps % (self.eval_steps or 1):
                raise ValueError(
                    f"sets.{name}.eval_steps = {each.eval_steps} is no multiple of "
                    f"evaluation.eval_steps = {self.eval_steps}, which says when there are "
                    "evaluations; choose one"
                )
        if self.decides in self.sets and self.sets[self.decides].eval_steps:
            raise ValueError(
                f"decides = {self.decides!r}, and sets.{self.decides}.eval_steps leaves it out of "
                "some evaluations; leave eval_steps out there"
            )
        return self

    @field_validator("functions")
    @classmethod
    def _some_function_scores(cls, functions: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if functions == ():
            raise ValueError("names no function; leave it out to score as in training")
        return functions

    def check_beside(self, data: DataConfig, *, max_tokens: int, by_loss: str | None) -> None:
        """Raise `ValueError` for sets that `[data]` does not have, or that nothing decides between.
        `max_tokens` is the run's, `by_loss` its algorithm if that judges by the loss."""
        there, named = data.eval_sets, [*data.eval_sets, *self.harnesses]
        for name in self.problem_sets.keys() - there.keys():
            raise ValueError(
                f"evaluation.sets.{name}: data.eval_sets has no set {name!r}{_meant(name, there)}. "
                "Name its problems there or, for a harness, its `type` here"
            )
        for name in self.harnesses.keys() & there.keys():
            raise ValueError(
                f"evaluation.sets.{name} is a harness, and data.eval_sets has a set {name!r}, too; "
                "give one of them another name"
            )
        if self.sets and by_loss:
            raise ValueError(
                f"evaluation.sets: algorithm.type = {by_loss!r} judges held-out rows by their "
                "loss, and samples nothing; leave it out"
            )
        for name, each in self.problem_sets.items():
            if each.max_tokens is not None and max_tokens < each.max_tokens:
                raise ValueError(
                    f"evaluation.sets.{name}.max_tokens = {each.max_tokens} is more than the "
                    f"{max_tokens} of rollout.max_tokens (training.max_completion_length), for "
                    "which there is room beside every prompt; set that to as many"
                )
        if self.decides and self.decides not in named:
            raise ValueError(
                f"evaluation.decides = {self.decides!r} is no set of the evaluations"
                f"{_meant(self.decides, named)}"
            )
        others = data.holds_out and not (there and there.keys() <= self.sets.keys())
        if self.sets and self.eval_steps != 0 and not (self.decides or others):
            raise ValueError(
                "evaluation.sets: each set has settings of its own, so that no mean over all of "
                "them decides which model is better; name the set whose reward does, as "
                f"evaluation.decides = {named[0]!r}"
            )

    @property
    def problem_sets(self) -> Mapping[str, ProblemSet]:
        """The sets of held-out problems with settings of their own."""
        return {name: each for name, each in self.sets.items() if isinstance(each, ProblemSet)}

    @property
    def harnesses(self) -> Mapping[str, Harness]:
        return {name: each for name, each in self.sets.items() if isinstance(each, Harness)}


def _meant(name: str, known: Collection[str]) -> str:
    near = nearest(name, known, cutoff=0.5)
    meant = f"; did you mean {near!r}?" if near else ""
    return f"{meant} (there are: {', '.join(known) or 'none'})"
