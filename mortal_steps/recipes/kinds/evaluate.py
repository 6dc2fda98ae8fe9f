"""`type = "evaluate"`: what a model scores on held-out problems, as a run would be evaluated.

evaluation.json   the mean of each score, with its interval
problems.jsonl    each problem: its scores, and the completions
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from mortal_steps.data.held_out import eval_set_sizes, read_held_out
from mortal_steps.data.problems import load_problems
from mortal_steps.environments.plan import ProblemsPlan
from mortal_steps.errors import ConfigError, DataError
from mortal_steps.orchestration.checking.own_rewards import own_rows
from mortal_steps.orchestration.trials.scoring import ModelScoring
from mortal_steps.orchestration.trials.trial import all_problems
from mortal_steps.recipes.kinds.sampled import SampledStage, failed_scores
from mortal_steps.recipes.stages import Job, OutputKind, Say
from mortal_steps.report.dialogue import completion_text
from mortal_steps.report.evaluations import mean_scores
from mortal_steps.report.held_out import REWARD, Scores, intervals_of, problem_scores
from mortal_steps.schedule import shard_bounds
from mortal_steps.store.files import write_json
from mortal_steps.types import Problem

EVALUATION = "evaluation.json"
PROBLEMS = "problems.jsonl"
OF_SETS = ("sets", "decides")
"""Keys of `[evaluation]` about sets with settings of their own, of which this stage has none."""
STEP = 0
"""The step from which seeds are derived, the same for all models."""


class EvaluateStage(SampledStage):
    """Scores a model on the problems that `[data]` holds out, or else on all of its rows."""

    outputs: ClassVar[Mapping[str, OutputKind]] = {"": "folder"}
    judges = True

    def __init__(self, name: str, values: Mapping[str, Any], recipe: str) -> None:
        evaluation = values.get("evaluation")
        for key in OF_SETS:
            if isinstance(evaluation, Mapping) and evaluation.get(key):
                raise ConfigError(
                    f"stages.{name}.evaluation.{key}: this stage scores all held-out problems "
                    "alike; leave it out, and write a stage for each set"
                )
        super().__init__(name, values, recipe)

    @classmethod
    def of_defaults(
        cls, defaults: Mapping[str, Any], table: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        found = dict(super().of_defaults(defaults, table))
        if isinstance(evaluation := found.get("evaluation"), Mapping):
            kept = {key: value for key, value in evaluation.items() if key not in OF_SETS}
            found["evaluation"] = kept
        return found

    def problems(self, plan: ProblemsPlan) -> list[Problem]:
        if not plan.data.holds_out:
            return all_problems(plan)
        own, made = own_rows(plan.environment), plan.num_made
        if plan.data.eval_sources:
            lacks = made is not None
            return read_held_out(plan.data, plan.seed, may_lack_prompts=lacks, own_rows=own)
        return load_problems(plan.data, plan.seed, num_made=made, own_rows=own)[1]

    async def make(self, job: Job, work: Path, out: Path, say: Say) -> Mapping[str, float]:
        plan = self.plan_here(job)
        sampling, rewards = plan.sampling, plan.scoring.rewards
        problems = self.problems(plan.problems)
        scoring, folder = await self.score(
            *(plan, problems, sampling.evaluation, work, say),
            count=sampling.num_evaluated,
            bounds=shard_bounds(len(problems), sampling.num_shards),
            stage="evaluate",
        )
        # Rows that nothing holds out are no set of their own.
        sets = eval_set_sizes(problems) if plan.problems.data.holds_out else {}
        shards = scoring.shards(folder)
        means = mean_scores(rewards, shards, sets)
        if REWARD not in means and any(shard.failures for shard in shards):
            raise DataError(
                f"stages.{self.name}: none of {sampling.num_evaluated * len(problems):,} "
                f"completions has a reward{failed_scores(scoring.discard_masked(folder))}"
            )
        scores = Scores(problem_scores(rewards, shards, sets))
        write_json(out / EVALUATION, _evaluation(means, scores, len(problems), plan.problems.seed))
        with (out / PROBLEMS).open("w", encoding="utf-8") as file:
            file.writelines(_lines(scoring, folder, scores))
        return means


def _evaluation(
    means: Mapping[str, float], scores: Scores, num_problems: int, seed: int
) -> dict[str, Any]:
    intervals = intervals_of(scores, (seed, STEP))
    shown: dict[str, dict[str, Any]] = {name: {"mean": mean} for name, mean in means.items()}
    for name, found in intervals.items():
        shown[name] |= {"low": found.low, "high": found.high, "method": found.method}
    return {"num_problems": num_problems, "scores": shown}


def _lines(scoring: ModelScoring, folder: Path, scores: Scores) -> Sequence[str]:
    lines = []
    num_problems = max(map(len, scores.values()))
    # Those of a set stand in the columns of all problems as well.
    of_all = {name: column for name, column in scores.items() if len(column) == num_problems}
    for row, scored in enumerate(scoring.scored(folder)):
        value = {
            "id": scored.group.problem.id,
            "prompt": scored.group.problem.prompt,
            "scores": {name: column[row] for name, column in of_all.items()},
            "completions": [completion_text(each) for each in scored.group.completions],
            "rewards": list(scored.rewards),
        }
        lines.append(f"{json.dumps(value, ensure_ascii=False)}\n")
    return lines
