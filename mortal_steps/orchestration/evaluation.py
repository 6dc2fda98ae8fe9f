"""Scores on the held-out problems, shard by shard."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mortal_steps.report.evaluations import mean_scores
from mortal_steps.runs.run import Run
from mortal_steps.schedule import shard_bounds
from mortal_steps.store.records import shard_file
from mortal_steps.types import (
    Evaluation,
    FileRef,
    GenerateRequest,
    GenerationRef,
    RewardedShard,
    RewardRef,
    RewardRequest,
    SamplingParams,
    StageTiming,
    WeightsRef,
)

Call = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOut:
    """The held-out problems, and how they are sampled."""

    problems: FileRef
    """Record of `list[Problem]`."""
    num_problems: int
    num_shards: int
    sampling: SamplingParams
    num_generations: int
    """Completions of each problem."""

    async def score(
        self, call: Call, step: int, weights: WeightsRef, folder: str
    ) -> list[RewardRef]:
        """Sample and score every shard with `weights` into `folder`; `call` asks a worker. Raises
        its error once all shards have ended: who tries again finds what they have committed, and
        samples none of it beside them."""
        bounds = enumerate(shard_bounds(self.num_problems, self.num_shards))
        sampling = [
            GenerateRequest(
                stage="evaluate",
                step=step,
                shard=shard,
                problems=self.problems,
                start=start,
                stop=stop,
                num_generations=self.num_generations,
                sampling=self.sampling,
                weights=weights,
                output=shard_file(folder, "generations", shard),
            )
            for shard, (start, stop) in bounds
        ]
        scoring = [asyncio.create_task(_score_shard(call, each, folder)) for each in sampling]
        await asyncio.gather(*scoring, return_exceptions=True)
        return [each.result() for each in scoring]


async def _score_shard(call: Call, sampling: GenerateRequest, folder: str) -> RewardRef:
    generation: GenerationRef = await call(GenerationRef, "rollout", "generate", sampling)
    output = shard_file(folder, "rewards", sampling.shard)
    scoring = RewardRequest(stage="evaluate", generation=generation, output=output)
    scored: RewardRef = await call(RewardRef, "reward", "reward", scoring)
    return scored


async def evaluate(run: Run, call: Call, step: int, weights: WeightsRef) -> Evaluation:
    """Sample, score and average the held-out problems; `call` asks a worker."""
    config, info = run.config, run.info
    held_out = HeldOut(
        problems=info.eval_problems,
        num_problems=info.num_eval_problems,
        num_shards=config.num_shards,
        sampling=config.eval_sampling,
        num_generations=config.evaluation.num_generations,
    )
    shards = await held_out.score(call, step, weights, f"evaluations/{step:06d}")
    rewarded = [run.store.read_record(shard.file, RewardedShard) for shard in shards]
    return Evaluation(
        step=step,
        num_problems=info.num_eval_problems,
        metrics=mean_scores(config.eval_rewards, rewarded, info.eval_sets),
        timing=StageTiming(
            stage="evaluate",
            step=step,
            busy_s=sum(s.timing.busy_s + s.generation.timing.busy_s for s in shards),
            wait_s=sum(s.timing.wait_s + s.generation.timing.wait_s for s in shards),
            functions=_added(
                [each.timing.functions for shard in shards for each in (shard, shard.generation)]
            ),
        ),
        failures=tuple(failure for shard in rewarded for failure in shard.failures),
    )


def _added(calls: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for seconds in calls for name in seconds)
    return {name: sum(seconds.get(name, 0.0) for seconds in calls) for name in names}
