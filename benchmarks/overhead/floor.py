"""The floor: a flow of empty async task runs, as many per step, fanned out alike, at the same pace.

An empty task run sleeps as long as its stage takes. In a tight loop it would cost less: caches stay
warm, and the server writes fuller batches.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any

from prefect import Task, flow, task
from prefect.cache_policies import NO_CACHE, CacheKeyFnPolicy

from benchmarks.overhead.meter import StepMeter
from mortal_steps.config import RunConfig
from mortal_steps.schedule import shard_bounds
from mortal_steps.types import FileRef

LEAST = {"persist_result": False, "cache_result_in_memory": False, "cache_policy": NO_CACHE}
"""The least that a task run can have: no retries, no cache, no persisted result."""

KEPT = ("get_batch", "generate", "reward")
"""Stages whose results `grpo_train` keeps."""

REFERENCE = FileRef(path="steps/000000/batch.json", sha256="0" * 64)
"""What a stage returns is about this, or a few times this."""


def make_floor(
    config: RunConfig,
    steps: int,
    meter: StepMeter,
    lengths_s: Mapping[str, float],
    *,
    persisted: bool,
) -> Any:
    """A flow that runs as many tasks as `grpo_train` does, in the same order and side by side.

    The tasks keep their names, without which nobody could read the run in the UI. `lengths_s`:
    how long each stage takes. `persisted`: the stages that keep their result in `grpo_train` keep
    one here too.
    """

    def empty(name: str, *indices: str) -> Task[..., Any]:
        keeps = persisted and name in KEPT
        options = _kept(name) if keeps else LEAST
        return _empty(name, indices, lengths_s.get(name, 0.0), options)

    get_batch = empty("get_batch", "step")
    generate = empty("generate", "step", "index")
    reward = empty("reward", "step", "index")
    train_step = empty("train_step", "step")
    sync_weights = empty("sync_weights", "step", "index")
    evaluate = empty("evaluate", "step")
    checkpoint = empty("checkpoint", "step")
    shards = range(len(shard_bounds(config.training.batch_size, config.num_shards)))
    workers = range(config.num_rollout_workers)
    eval_steps = config.evaluation.eval_steps

    async def roll_out(step: int, shard: int) -> None:
        await generate(step, shard)
        await reward(step, shard)

    @flow(name="overhead-floor", persist_result=False)
    async def floor() -> None:
        for step in range(steps):
            meter.mark()
            await get_batch(step)
            await asyncio.gather(*(roll_out(step, shard) for shard in shards))
            await train_step(step)
            await asyncio.gather(*(sync_weights(step, worker) for worker in workers))
            done = step + 1
            if eval_steps and (done % eval_steps == 0 or done == steps):
                await evaluate(done)
            if done % config.checkpoints.save_steps == 0 or done == steps:
                await checkpoint(done)

    return floor


def _empty(
    name: str, indices: tuple[str, ...], length_s: float, options: dict[str, Any]
) -> Task[..., Any]:
    """An empty task whose runs are called `name/{step}`, or `name/{step}/{index}`."""

    async def of_step(step: int) -> FileRef:
        await asyncio.sleep(length_s)
        return REFERENCE

    async def of_step_and_index(step: int, index: int) -> FileRef:
        await asyncio.sleep(length_s)
        return REFERENCE

    run_name = "/".join([name, *(f"{{{index}}}" for index in indices)])
    body = of_step_and_index if "index" in indices else of_step
    return task(name=name, task_run_name=run_name, **options)(body)


def _kept(name: str) -> dict[str, Any]:
    run = uuid.uuid4().hex

    def key(context: Any, inputs: dict[str, Any]) -> str:
        return f"{run}/{name}/" + "-".join(map(str, inputs.values()))

    return {**LEAST, "persist_result": True, "cache_policy": CacheKeyFnPolicy(cache_key_fn=key)}
