"""Grades the problems of a dataset by how often a model solves them: `mortal grade`.

    runs/.graded/<key>/shards/generations-<shard>.parquet  rewards-<shard>.parquet

The key is a digest of the model, the problems, the settings that decide a score, and the code of
the reward functions. So a grading that is killed goes on where it was, and costs the shards in
flight.
"""

import asyncio
import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

from mortal_steps.compute.base import Role, WorkerSpec
from mortal_steps.compute.local import LocalCompute, call_once
from mortal_steps.data.problem_files import dataset_fingerprint
from mortal_steps.errors import StoreError
from mortal_steps.models.local_folder import describe_model
from mortal_steps.orchestration.checking.checks import check_rows
from mortal_steps.orchestration.trials.opening import in_folder
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.starting_model.base_model import base_model_path
from mortal_steps.rewards.sources import find_sources
from mortal_steps.scores import differ, reward_weights, weighted_sum
from mortal_steps.statistics.passing import pass_at
from mortal_steps.store import RunStore
from mortal_steps.store.files import locked_at_once, write_atomically
from mortal_steps.store.records import shard_file
from mortal_steps.types import (
    FileRef,
    GenerateRequest,
    GenerationRef,
    PolicyVersion,
    Problem,
    RewardedShard,
    RewardRef,
    RewardRequest,
    SamplingParams,
    WeightsRef,
)

FOLDER = ".graded"
"""In the folder of the runs."""
WORKER = "mortal_steps.rollout.trial:GradedModelWorker"
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

    def row(self) -> dict[str, Any]:
        """Return the row of the dataset, with the grade in further columns."""
        return {
            "prompt": self.problem.prompt,
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
        plan: Plan,
        workers: Mapping[Role, WorkerSpec],
        problems: Sequence[Problem],
        sampling: SamplingParams,
        *,
        num_generations: int,
        problems_per_shard: int,
        runs_dir: Path,
    ) -> None:
        self._plan, self._workers, self._problems = plan, workers, problems
        self._sampling, self._count = sampling, num_generations
        self._size = problems_per_shard
        self._runs_dir = runs_dir

    async def grade(
        self,
        model: tuple[str, str] | None = None,
        *,
        success: float | None = None,
        report: Callable[[int, int], None] = lambda done, of: None,
    ) -> Grades:
        """Return the grades. `model` is a folder of a finished model and its digest; by default, it
        is the one that a run would begin with. `success` is the lowest reward of a solution, by
        default the highest reward that any completion got, unless all got the same and it is not
        above 0: then none is a solution. `report` is told how many completions
        there are, and how many there will be. Raises what workers raise."""
        path, sha256 = model or self._starting_model()
        store = RunStore(self._runs_dir / FOLDER / self._key(sha256))
        store.root.mkdir(parents=True, exist_ok=True)
        with locked_at_once(store.path("lock")) as lock:
            if lock is None:
                raise StoreError(f"{store.root} is being graded by another process; wait for it")
            shards = await self._score(store, self._ready(store, path), report)
        weights = reward_weights(self._plan.scoring.rewards)
        rewards = [
            [weighted_sum(each, weights) for each in scores]
            for shard in shards
            for scores in store.read_record(shard.file, RewardedShard).rewards
        ]
        known = [[each for each in group if each is not None] for group in rewards]
        least = _least_of_solutions(known) if success is None else success
        graded = [
            Graded(
                problem=problem,
                num_scored=len(group),
                num_solved=sum(not differ(reward, least) for reward in group),
                mean_reward=fmean(group) if group else None,
            )
            for problem, group in zip(self._problems, known, strict=True)
        ]
        return Grades(problems=graded, num_generations=self._count, success=least)

    def _starting_model(self) -> tuple[str, str]:
        """Return the folder or name of the model that a run would begin with, and what tells it
        from others."""
        plan = self._plan.actor
        path = base_model_path(plan, dataset_fingerprint(self._problems))
        model = plan.trainer.model
        files = {name: each.sha256 for name, each in describe_model(model).items()}
        return path, json.dumps([model.model_dump(mode="json"), files])

    def _key(self, model: str) -> str:
        scoring, code, sampler = self._plan.scoring, self._plan.code, self._plan.sampler
        sources = find_sources(code.scoring, Path.cwd(), folders=code.model_folders)
        parts = [
            model,
            dataset_fingerprint(self._problems),
            sources.digest(),
            [term.model_dump(mode="json") for term in scoring.rewards.all_terms],
            dataclasses.asdict(self._sampling),
            sampler.seed,
            sampler.rollout.model_dump(mode="json"),
            sampler.model.model_dump(mode="json"),
            sampler.environment.model_dump(mode="json"),
            [str(sampler.template_options), str(sampler.tools)],
            [self._count, self._size],
        ]
        text = json.dumps(parts, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _ready(self, store: RunStore, path: str) -> Mapping[Role, WorkerSpec]:
        """Build the starting model if it is none yet, and return the workers that use it."""
        plan, root = self._plan.actor, store.root.absolute()
        actor, rollout = (
            in_folder(self._workers[role], root, model_path=path) for role in ("actor", "rollout")
        )
        if plan.trainer.model.new or plan.trainer.model.warm_start:
            ref = store.write_record("problems.json", list(self._problems), list[Problem])
            call_once(actor, "build_base_model", problems=ref)
        if plan.environment.is_used:
            check_rows(plan.environment, self._problems)
            call_once(actor, "keep_chat")
        return {
            "rollout": dataclasses.replace(rollout, factory=WORKER),
            "reward": in_folder(self._workers["reward"], root),
        }

    async def _score(
        self,
        store: RunStore,
        workers: Mapping[Role, WorkerSpec],
        report: Callable[[int, int], None],
    ) -> list[RewardRef]:
        store.remove_leftovers("")
        problems = store.write_record("problems.json", list(self._problems), list[Problem])
        compute = LocalCompute(
            workers, working_dir=Path.cwd(), log_dir=store.path("logs").absolute()
        )
        done, total = 0, len(self._problems) * self._count

        async def score(request: GenerateRequest) -> RewardRef:
            nonlocal done
            key = f"grade/0/{request.shard}"
            made: GenerationRef = await compute.call(
                "rollout", "generate", key=key, request=request
            )
            output = shard_file("shards", "rewards", request.shard)
            asked = RewardRequest(stage="reward", generation=made, output=output)
            scored: RewardRef = await compute.call("reward", "reward", key=key, request=asked)
            done += made.num_completions
            report(done, total)
            return scored

        try:
            return await asyncio.gather(*map(score, self._requests(problems)))
        finally:
            await compute.close()

    def _requests(self, problems: FileRef) -> list[GenerateRequest]:
        size, count = self._size, len(self._problems)
        return [
            GenerateRequest(
                stage="generate",
                step=0,
                shard=number,
                problems=problems,
                start=start,
                stop=min(start + size, count),
                num_generations=self._count,
                sampling=self._sampling,
                weights=WeightsRef(version=PolicyVersion(0), path="model", sha256=""),
                output=shard_file("shards", "generations", number),
            )
            for number, start in enumerate(range(0, count, size))
        ]


def _least_of_solutions(rewards: Sequence[Sequence[float]]) -> float:
    every = [reward for group in rewards for reward in group]
    best = max(every, default=0.0)
    return best if best > 0 or differ(min(every, default=0.0), best) else inf


def write_rows(path: Path, grades: Grades) -> None:
    """Write the dataset with its grades, a row a line."""
    lines = [json.dumps(each.row(), ensure_ascii=False) for each in grades.problems]
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode())
