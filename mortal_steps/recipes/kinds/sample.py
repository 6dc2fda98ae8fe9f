"""`type = "sample"`: completions of every problem, scored, as rows that SFT, DPO and KTO read."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

from mortal_steps.environments.plan import ProblemsPlan
from mortal_steps.errors import DataError
from mortal_steps.orchestration.trials.scoring import ModelScoring
from mortal_steps.orchestration.trials.trial import all_problems
from mortal_steps.recipes.kept_rows import (
    SampleSettings,
    candidates_of,
    made_up_row,
    other_columns,
    rows_of,
)
from mortal_steps.recipes.kinds.own_table import read_table
from mortal_steps.recipes.kinds.sampled import SampledStage, failed_scores
from mortal_steps.recipes.references import find_reference
from mortal_steps.recipes.stages import Job, OutputKind, Say
from mortal_steps.types import Problem

OWN = "sample"
ROWS = "rows.jsonl"


class SampleStage(SampledStage):
    """Rejection sampling, pairs and labels: what of a model's own completions is worth learning."""

    outputs: ClassVar[Mapping[str, OutputKind]] = {"": "dataset"}
    without = ("evaluation", OWN)

    def __init__(self, name: str, values: Mapping[str, Any], recipe: str) -> None:
        super().__init__(name, values, recipe)
        called = f"stages.{name}.{OWN}"
        self._sample = read_table(SampleSettings, values.get(OWN, {}), called)

    @classmethod
    def of_defaults(
        cls, defaults: Mapping[str, Any], table: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        own = {OWN: defaults[OWN]} if OWN in defaults else {}
        return {**super().of_defaults(defaults, table), **own}

    def parts(self) -> Any:
        return {**super().parts(), OWN: self._sample.model_dump(mode="json")}

    def problems(self, plan: ProblemsPlan) -> list[Problem]:
        return all_problems(plan)

    def rows(self) -> Sequence[Mapping[str, Any]] | None:
        if find_reference(self.plan.problems.data.source, "") is not None:
            return None
        problems = self.problems(self.plan.problems)
        names = other_columns(problems)
        return [
            {**made_up_row(each.prompt, self._sample.keep), **{n: each.columns[n] for n in names}}
            for each in problems
        ]

    def main(self, out: Path) -> str:
        return ROWS

    async def make(self, job: Job, work: Path, out: Path, say: Say) -> Mapping[str, float]:
        plan = self.plan_here(job)
        size = plan.sampling.problems_per_shard
        problems = self.problems(plan.problems)
        num_problems = len(problems)
        scoring, folder = await self.score(
            *(plan, problems, plan.sampling.training, work, say),
            count=self._sample.completions,
            bounds=[(at, min(at + size, num_problems)) for at in range(0, num_problems, size)],
        )
        metrics = _Metrics()
        lines = self._lines(scoring, folder, other_columns(problems), metrics)
        with (out / ROWS).open("w", encoding="utf-8") as file:
            file.writelines(lines)
        if not metrics.counts["rows"]:
            raise DataError(
                f"stages.{self.name}.{OWN}: none of {metrics.counts['scored']:,} scored "
                f"completions is kept (keep = {self._sample.keep!r}, threshold = "
                f"{self._sample.threshold}, highest reward {max(metrics.best, default=None)}); "
                "lower the threshold, sample more, or look at them with `mortal test-rollout`"
                f"{failed_scores(scoring.discard_masked(folder))}"
            )
        return metrics.found()

    def _lines(
        self, scoring: ModelScoring, folder: Path, names: Sequence[str], metrics: "_Metrics"
    ) -> Iterator[str]:
        for scored in scoring.scored(folder):
            candidates = candidates_of(scored)
            columns = {name: scored.group.problem.columns[name] for name in names}
            rows = [{**columns, **row} for row in rows_of(candidates, self._sample)]
            metrics.add([each.reward for each in candidates], len(scored.rewards), len(rows))
            yield from (f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


class _Metrics:
    """What is counted over all problems."""

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self.best: list[float] = []
        self._sum: list[float] = []

    def add(self, rewards: Sequence[float], num_completions: int, num_rows: int) -> None:
        """Count a problem, its completions' rewards, and the rows that it became."""
        self.counts["problems"] += 1
        self.counts["completions"] += num_completions
        self.counts["scored"] += len(rewards)
        self.counts["rows"] += num_rows
        self.counts["without_a_row"] += not num_rows
        self.counts["without_a_difference"] += bool(rewards) and min(rewards) == max(rewards)
        if rewards:
            self.best.append(max(rewards))
            self._sum += rewards

    def found(self) -> dict[str, float]:
        """Return the metrics by name."""
        means = {"reward": fmean(self._sum), "best_reward": fmean(self.best)} if self.best else {}
        return {**{name: float(count) for name, count in self.counts.items()}, **means}
