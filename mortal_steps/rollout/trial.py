"""Sample completions of a model that is not trained any more, or not yet."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mortal_steps.rollout.engines.base import Engine
from mortal_steps.rollout.episodes.base import Episodes
from mortal_steps.rollout.plan import SamplerPlan
from mortal_steps.rollout.template_clock import template_clock
from mortal_steps.rollout.worker import RolloutWorker
from mortal_steps.types import (
    GeneratedGroup,
    GeneratedShard,
    GenerateRequest,
    PolicyVersion,
    Problem,
    SamplingParams,
    WeightsRef,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledProblems:
    """The completions, and how long they took."""

    groups: Sequence[GeneratedGroup]
    """One group for each problem, in order."""
    start_s: float
    """Seconds until the engine was ready."""
    sample_s: float
    """Seconds of sampling, all completions together."""

    @property
    def num_completions(self) -> int:
        return sum(len(group.completions) for group in self.groups)

    @property
    def num_tokens(self) -> int:
        return sum(each.num_sampled for group in self.groups for each in group.completions)

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.sample_s


class FinishedModelWorker(RolloutWorker):
    """Samples with the model in `model_path` whatever version a request names; it never has other
    weights, so nothing is proven."""

    def _engine_with(self, weights: WeightsRef) -> Engine:
        """Raise `CorruptFileError` for a folder that is not as committed."""
        if self._loaded != weights:
            self._store.verify_folder(weights.path, weights.sha256)
            self._loaded = weights
        return self._started_engine()

    def sample(
        self, *, problems: Sequence[Problem], num_generations: int, sampling: SamplingParams
    ) -> SampledProblems:
        """Sample `num_generations` completions per problem as one shard; raises what
        `RolloutWorker.start` and `generate` raise."""
        began = time.perf_counter()
        self.start()
        started = time.perf_counter()
        request = GenerateRequest(
            stage="generate",
            step=0,
            shard=0,
            problems=self._store.write_record("problems.json", list(problems), list[Problem]),
            start=0,
            stop=len(problems),
            num_generations=num_generations,
            sampling=sampling,
            weights=WeightsRef(version=PolicyVersion(0), path="model", sha256=""),
            output="unused",
        )
        engine, episodes = self._started_engine(), self._started_episodes(request.stage)
        shard = self._sample_shard(engine, episodes, request)
        return SampledProblems(
            groups=shard.groups,
            start_s=started - began,
            sample_s=time.perf_counter() - started,
        )


def sample_here(
    plan: SamplerPlan,
    problems: Sequence[Problem],
    num_generations: int,
    sampling: SamplingParams,
) -> SampledProblems:
    """Sample here with the model that the plan names."""
    with tempfile.TemporaryDirectory(prefix="mortal-") as folder:
        worker = FinishedModelWorker(run_dir=folder, model_path=plan.model.name_or_path, plan=plan)
        try:
            return worker.sample(
                problems=problems, num_generations=num_generations, sampling=sampling
            )
        finally:
            worker.close()


class GradedModelWorker(FinishedModelWorker):
    """The same with a model that is no folder of the store: one of the hub, or of another run."""

    def _engine_with(self, weights: WeightsRef) -> Engine:
        self._loaded = weights
        return self._started_engine()


class JudgedModelWorker(FinishedModelWorker):
    """The same on a given day, which some chat templates write into each prompt."""

    def __init__(self, *, day: str, **settings: Any) -> None:
        """`day` such as `2026-11-24`."""
        super().__init__(**settings)
        self._clock = datetime.fromisoformat(day).strftime

    def _sample_shard(
        self, engine: Engine, episodes: Episodes, request: GenerateRequest
    ) -> GeneratedShard:
        with template_clock(self._clock):
            return super()._sample_shard(engine, episodes, request)
