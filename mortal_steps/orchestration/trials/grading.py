"""Grades the problems of a dataset by how often a model solves them: `mortal grade`.

    runs/.graded/<key>/shards/generations-<shard>.parquet  rewards-<shard>.parquet

The key is a digest of the model, the problems, the settings that decide a score, and the code of
the reward functions. So a grading that is killed goes on where it was, and costs the shards in
flight; one that has ended is asked again for what failed in it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

from mortal_steps.errors import StoreError
from mortal_steps.orchestration.trials.scoring import ModelScoring, Report
from mortal_steps.plan.parts import WorkerPlans
from mortal_steps.scores import differ
from mortal_steps.statistics.passing import pass_at
from mortal_steps.store.files import locked_at_once, write_output
from mortal_steps.types import Problem, SamplingParams

FOLDER = ".graded"
"""In the folder of the runs."""
LARGEST_GROUP = 64
"""Completions of a group, at most, that a grade suggests."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Graded:
    """A problem, and how a model did on it."""

    problem: Problem
    num_scored: int
    """Completions that have a reward."""
    num_solved: int
    """Those of them whose reward is at least that of a solution."""
    mean_reward: float | None

    @property
    def pass_rate(self) -> float | None:
        return self.num_solved / self.num_scored if self.num_scored else None

    @property
    def group_size(self) -> int | None:
        """Completions of which about one is a solution, or about one is none, whichever is rarer:
        fewer hardly ever differ. None where all that were sampled are alike."""
        if not self.num_scored or self.num_solved in (0, self.num_scored):
            return None
        rarer = min(self.num_solved, self.num_scored - self.num_solved) / self.num_scored
        return min(LARGEST_GROUP, max(2, round(1 / rarer)))

    def row(self, prompt_column: str) -> dict[str, Any]:
        """Return the row of the dataset, with the grade in further columns."""
        return {
            prompt_column: self.problem.prompt,
            **self.problem.columns,
            "pass_rate": self.pass_rate,
            "mean_reward": self.mean_reward,
            "group_size": self.group_size,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Grades:
    """The grades of all problems."""

    problems: Sequence[Graded]
    num_generations: int
    success: float
    """The reward from which on a completion counts as a solution; infinite if none does."""

    @property
    def scored(self) -> list[Graded]:
        return [each for each in self.problems if each.num_scored]

    def pass_at(self, k: int) -> list[float]:
        """Return pass@k of each problem that has so many scored completions: the chance that one of
        k completions is a solution, without bias."""
        return [
            pass_at(k, each.num_scored, each.num_solved)
            for each in self.problems
            if each.num_scored >= k
        ]


class Grading:
    """Samples every problem several times and scores the completions, with a run's workers."""

    def __init__(
        self,
        plans: WorkerPlans,
        problems: Sequence[Problem],
        sampling: SamplingParams,
        *,
        num_generations: int,
        problems_per_shard: int,
        runs_dir: Path,
    ) -> None:
        size, count = problems_per_shard, len(problems)
        self._scoring = ModelScoring(
            *(plans, problems, sampling),
            num_generations=num_generations,
            bounds=[(start, min(start + size, count)) for start in range(0, count, size)],
        )
        self._problems, self._count, self._size = problems, num_generations, size
        self._runs_dir = runs_dir

    async def grade(
        self,
        model: tuple[str, str] | None = None,
        *,
        success: float | None = None,
        report: Report = lambda done, of: None,
    ) -> Grades:
        """Return the grades. `model` is a folder of a finished model and its digest; by default, it
        is the one that a run would begin with. `success` is the lowest reward of a solution, by
        default the highest reward that any completion got, unless all got the same and it is not
        above 0: then none is a solution. `report` is told how many completions
        there are, and how many there will be. Raises what workers raise."""
        path, sha256 = model or self._scoring.starting_model()
        key = self._scoring.key(sha256, [self._count, self._size])
        folder = self._runs_dir / FOLDER / key
        with locked_at_once(folder / "lock") as lock:
            if lock is None:
                raise StoreError(f"{folder} is being graded by another process; wait for it")
            await self._scoring.score(folder, path, report, asks_masked_again=True)
        rewards = [each.rewards for each in self._scoring.scored(folder)]
        known = [[each for each in group if each is not None] for group in rewards]
        least = _least_of_solutions(known) if success is None else success
        graded = [
            Graded(
                problem=problem,
                num_scored=len(group),
                num_solved=sum(_is_solution(reward, least) for reward in group),
                mean_reward=fmean(group) if group else None,
            )
            for problem, group in zip(self._problems, known, strict=True)
        ]
        return Grades(problems=graded, num_generations=self._count, success=least)


def _is_solution(reward: float, least: float) -> bool:
    return least < inf and not differ(reward, least)  # infinity less a reward is no more than inf


def _least_of_solutions(rewards: Sequence[Sequence[float]]) -> float:
    every = [reward for group in rewards for reward in group]
    best = max(every, default=0.0)
    return best if best > 0 or differ(min(every, default=0.0), best) else inf


def write_rows(path: Path, grades: Grades, prompt_column: str) -> None:
    """Write the rows as they were graded, with their grades, a row a line: in the configuration,
    the file takes the place of `data.source` and of what chose these rows and columns there."""
    lines = [json.dumps(each.row(prompt_column), ensure_ascii=False) for each in grades.problems]
    write_output(path, "".join(f"{line}\n" for line in lines).encode())
