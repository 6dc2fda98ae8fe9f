"""Scores on the held-out problems, shard by shard."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mortal_steps.plan.held_out import HeldOutSets
from mortal_steps.report.evaluations import evaluation_scores
from mortal_steps.runs.run import Run, held_out_sets
from mortal_steps.store.records import harness_file, shard_file
from mortal_steps.types import (
    Evaluation,
    FileRef,
    GenerateRequest,
    GenerationRef,
    HarnessAnswer,
    HarnessRef,
    HarnessRequest,
    RewardedShard,
    RewardRef,
    RewardRequest,
    SamplingParams,
    StageTiming,
    WeightsRef,
)

Call = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """What the workers have answered in an evaluation."""

    shards: Sequence[RewardRef]
    harnesses: Mapping[str, HarnessRef]
    """By the name of the set."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeEvaluation:
    """All that an evaluation asks for."""

    shards: Sequence[GenerateRequest]
    harnesses: Sequence[HarnessRequest]

    async def score(self, call: Call, folder: str) -> Scored:
        """Sample and score every shard into `folder`, and ask the harnesses; `call` asks a worker.
        Raises its error once all have ended: who tries again finds what they have committed, and
        samples none of it beside them."""
        # Harnesses first: they take long, and have a worker each.
        asked = {
            each.name: asyncio.create_task(_ask_harness(call, each)) for each in self.harnesses
        }
        scoring = [asyncio.create_task(_score_shard(call, each, folder)) for each in self.shards]
        await asyncio.gather(*asked.values(), *scoring, return_exceptions=True)
        return Scored(
            shards=[each.result() for each in scoring],
            harnesses={name: each.result() for name, each in asked.items()},
        )


async def _ask_harness(call: Call, request: HarnessRequest) -> HarnessRef:
    answered: HarnessRef = await call(HarnessRef, "rollout", "run_harness", request)
    return answered


async def _score_shard(call: Call, sampling: GenerateRequest, folder: str) -> RewardRef:
    generation: GenerationRef = await call(GenerationRef, "rollout", "generate", sampling)
    output = shard_file(folder, "rewards", sampling.shard)
    scoring = RewardRequest(
        stage="evaluate", generation=generation, output=output, eval_set=sampling.eval_set
    )
    scored: RewardRef = await call(RewardRef, "reward", "reward", scoring)
    return scored


async def evaluate(run: Run, call: Call, step: int, weights: WeightsRef) -> Evaluation:
    """Sample, score and average the held-out problems, and ask the harnesses; `call` asks a
    worker."""
    config, info, held_out = run.config, run.info, held_out_sets(run)
    folder = f"evaluations/{step:06d}"
    whole = whole_evaluation(
        *(held_out, step, weights, folder),
        problems=info.eval_problems,
        num_shards=config.num_shards,
        sampling=config.eval_sampling,
    )
    scored = await whole.score(call, folder)
    shards, store = scored.shards, run.store
    rewarded = [store.read_record(shard.file, RewardedShard) for shard in shards]
    answers = {n: store.read_record(a.file, HarnessAnswer) for n, a in scored.harnesses.items()}
    timings = [each for shard in shards for each in (shard.timing, shard.generation.timing)]
    timings += [answer.timing for answer in scored.harnesses.values()]
    return Evaluation(
        step=step,
        num_problems=info.num_eval_problems,
        metrics=evaluation_scores(held_out, step, rewarded, answers),
        timing=StageTiming(
            stage="evaluate",
            step=step,
            busy_s=sum(timing.busy_s for timing in timings),
            wait_s=sum(timing.wait_s for timing in timings),
            functions=_added([timing.functions for timing in timings]),
        ),
        failures=tuple(failure for shard in rewarded for failure in shard.failures),
    )


def whole_evaluation(
    held_out: HeldOutSets,
    step: int,
    weights: WeightsRef,
    folder: str,
    *,
    problems: FileRef,
    num_shards: int,
    sampling: SamplingParams,
) -> WholeEvaluation:
    """Return all that an evaluation of `weights` after `step` steps asks for, with answers in
    `folder`. `problems` is the record of those held out; `sampling` is that of sets without
    settings of their own, and its `max_tokens` the default of harnesses."""
    evaluation, shards = held_out.evaluation, list[GenerateRequest]()
    for part in held_out.parts(step):
        own, count = evaluation.problem_sets.get(part.name), evaluation.num_generations
        shards += [
            GenerateRequest(
                stage="evaluate",
                step=step,
                shard=shard,
                problems=problems,
                start=start,
                stop=stop,
                num_generations=(own.num_generations if own else None) or count,
                sampling=own.sampling(sampling) if own else sampling,
                weights=weights,
                output=shard_file(folder, "generations", shard),
                eval_set=part.name,
            )
            for shard, (start, stop) in enumerate(part.bounds(num_shards), len(shards))
        ]
    harnesses = [
        HarnessRequest(
            name=name,
            step=step,
            shard=number,
            weights=weights,
            max_tokens=sampling.max_tokens,
            output=harness_file(folder, name),
        )
        for number, name in enumerate(held_out.harnesses(step), len(shards))
    ]
    return WholeEvaluation(shards=shards, harnesses=harnesses)


def _added(calls: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for seconds in calls for name in seconds)
    return {name: sum(seconds.get(name, 0.0) for seconds in calls) for name in names}
