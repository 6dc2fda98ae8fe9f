"""A run being driven: the run directory together with the workers that serve it (see `driver`).

A stage asks a worker and commits the result to the store; stages exchange references. Here nothing
is retried, named or cached: `mortal_tasks.stages` overrides the stages with Prefect's tasks.
"""

import asyncio
import dataclasses
import functools
import logging
import time
from collections.abc import Collection, Sequence
from typing import TypeVar

from mortal_steps.compute.base import ROLES, Role
from mortal_steps.compute.pool import Compute
from mortal_steps.data.problem_files import open_problems
from mortal_steps.data.problems import get_batch
from mortal_steps.errors import WorkerLostError
from mortal_steps.orchestration import evaluation
from mortal_steps.orchestration.budget import Budget
from mortal_steps.policy.batches import Batch, TrainRequest
from mortal_steps.runs.run import Run
from mortal_steps.schedule import RunSchedule, shard_bounds
from mortal_steps.store import RunStore
from mortal_steps.store.records import step_file
from mortal_steps.system.threads import in_thread
from mortal_steps.types import (
    ActorReady,
    BatchRef,
    Checkpoint,
    Evaluation,
    FileRef,
    FinalModel,
    GeneratedShard,
    GenerateRequest,
    GenerationRef,
    HarnessRef,
    HarnessRequest,
    Problem,
    RewardedShard,
    RewardRef,
    RewardRequest,
    StageTiming,
    StepResult,
    WeightsRef,
)

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer", GenerationRef, RewardRef, StepResult, HarnessRef)


class Session:
    """One run, its workers, and the stages that they carry out. A stage raises the `MortalError`
    that ends the run. If it is called again after a kill, it returns what it has committed. This is
    a plain class, so that Prefect does not search it for results."""

    def __init__(
        self, run: Run, compute: Compute, roles: Collection[Role] = ROLES, *, samples: bool = True
    ) -> None:
        """`roles` are those whose workers are started; `samples` is the batch source's."""
        self.run = run
        self.compute = compute
        self.roles = roles
        self.schedule = RunSchedule(
            rollout=run.config.rollout,
            evaluation=run.config.evaluation,
            save_steps=run.config.checkpoints.save_steps,
            num_steps=run.info.num_steps,
            holds_evaluations=run.config.evaluates,
            samples=samples,
            samples_held_out=run.config.samples_held_out,
        )
        self.budget = Budget(compute, run.store.root, run.config.compute.modal.max_cost)

    @property
    def store(self) -> RunStore:
        return self.run.store

    @functools.cached_property
    def problems(self) -> Sequence[Problem]:
        """The training problems, as committed when the run was created."""
        return open_problems(self.store, self.run.info.train_problems)

    def is_committed(self, stage: str, step: int, shard: int = 0) -> bool:
        """Whether the file exists that a stage commits for a step; it may be damaged."""
        return self.store.path(step_file(stage, step, shard)).exists()

    # stages

    async def get_batch(self, step: int) -> BatchRef:
        """Commit the problems of a step: a pure function of dataset, seed and step."""
        return await in_thread(functools.partial(self._get_batch, step))

    def _get_batch(self, step: int) -> BatchRef:
        started = time.perf_counter()
        config = self.run.config
        size = config.training.batch_size
        batch = get_batch(self.problems, config.data, batch_size=size, step=step, seed=config.seed)
        file = self.store.write_record(step_file("get_batch", step), batch, list[Problem])
        timing = StageTiming(stage="get_batch", step=step, busy_s=time.perf_counter() - started)
        return BatchRef(step=step, file=file, num_problems=len(batch), timing=timing)

    async def draw(
        self, step: int, round: int, rows: Sequence[int], num_generations: int | None = None
    ) -> BatchRef:
        """Commit these rows of the training problems as those of a round of a step, to sample as
        many completions of each; by default, a group."""
        file = step_file("get_batch", step, round)
        problems = [self.problems[row] for row in rows]
        write = functools.partial(self.store.write_record, file, problems, list[Problem])
        ref = await in_thread(write)
        timing = StageTiming(stage="get_batch", step=step, index=round)
        return BatchRef(
            step=step,
            file=ref,
            num_problems=len(rows),
            timing=timing,
            round=round,
            num_generations=num_generations,
        )

    def shards_of(self, batch: BatchRef) -> range:
        """Return the numbers of the shards in which a batch is sampled. Those of a later round
        follow those of the one before."""
        first, num_shards = batch.round * self.run.config.num_shards, self.run.config.num_shards
        return range(first, first + min(num_shards, batch.num_problems))

    async def generate(self, batch: BatchRef, shard: int, weights: WeightsRef) -> GenerationRef:
        """Sample one of a batch's `shards_of` on whichever rollout worker is free."""
        number = self.shards_of(batch).index(shard)
        start, stop = shard_bounds(batch.num_problems, self.run.config.num_shards)[number]
        request = GenerateRequest(
            stage="generate",
            step=batch.step,
            shard=shard,
            problems=batch.file,
            start=start,
            stop=stop,
            num_generations=batch.num_generations or self.run.config.training.num_generations,
            sampling=self.run.config.sampling,
            weights=weights,
            output=step_file("generate", batch.step, shard),
            round=batch.round,
        )
        return await self.call(GenerationRef, "rollout", "generate", request)

    async def reward(self, generation: GenerationRef) -> RewardRef:
        request = RewardRequest(
            stage="reward",
            generation=generation,
            output=step_file("reward", generation.step, generation.shard),
        )
        return await self.call(RewardRef, "reward", "reward", request)

    async def leave_unscored(self, generation: GenerationRef) -> RewardRef:
        """Commit that completions have no scores, where nobody is asked for any."""
        return await in_thread(functools.partial(self._leave_unscored, generation))

    def _leave_unscored(self, generation: GenerationRef) -> RewardRef:
        step, shard = generation.step, generation.shard
        generated = self.store.read_record(generation.file, GeneratedShard)
        unscored = RewardedShard(
            step=step,
            shard=shard,
            generation_sha256=generation.file.sha256,
            rewards=[[{} for _ in group.completions] for group in generated.groups],
        )
        return RewardRef(
            step=step,
            shard=shard,
            file=self.store.write_record(step_file("reward", step, shard), unscored, RewardedShard),
            generation=generation,
            reward_sum=0.0,
            num_scored=0,
            timing=StageTiming(stage="reward", step=step, index=shard),
        )

    async def train_step(self, step: int, batch: Batch) -> StepResult:
        """Have the actor take the step; asked twice, it trains once."""
        request = TrainRequest(step=step, batch=batch, publish=self.schedule.publishes(step + 1))
        return await self.call(StepResult, "actor", "train_step", request)

    async def sync_weights(self, weights: WeightsRef, worker: int) -> StageTiming:
        """Have a rollout worker load and verify a published version. Nobody waits for one that is
        lost meanwhile: back again, it loads the version of its first shard."""
        key = self._key("sync_weights", weights.version, worker)
        started = time.perf_counter()
        timing = StageTiming(stage="sync_weights", step=weights.version)
        try:
            timing = await self.compute.call(
                "rollout", "sync_weights", key=key, worker=worker, weights=weights
            )
        except WorkerLostError as error:
            logger.warning("weights v%d not loaded: %s", weights.version, error)
        return _with_wait(timing, started, worker)

    async def begin_checkpoint(self, step: int) -> str | None:
        """Have the actor begin to write its state; `checkpoint` waits for the end. Returns why that
        is not possible beside other work, or None."""
        key = self._key("checkpoint", step, 1)
        why = await self.compute.call("actor", "begin_checkpoint", key=key, step=step)
        return None if why is None else str(why)

    async def is_saving(self, step: int) -> bool:
        """Whether the checkpoint of `step`, which the actor has begun, is still being written."""
        key = self._key("is_saving", step)
        saving: bool = await self.compute.call("actor", "is_saving", key=key)
        return saving

    async def checkpoint(self, step: int, *, best_score: float | None) -> Checkpoint:
        """Save the actor's complete state; `best_score` is its score if that is the best so far."""
        key = self._key("checkpoint", step)
        started = time.perf_counter()
        saved: Checkpoint = await self.compute.call(
            "actor", "checkpoint", key=key, step=step, best_score=best_score
        )
        return dataclasses.replace(saved, timing=_with_wait(saved.timing, started))

    async def draw_order(self, epoch: int, step: int) -> FileRef:
        """Have the actor commit the order of an epoch of rows, of which `step` is the first."""
        order: FileRef = await self.compute.call(
            "actor", "draw_order", key=self._key("draw_order", step), epoch=epoch, step=step
        )
        return order

    async def evaluate(self, step: int, weights: WeightsRef | None) -> Evaluation:
        """Sample and score the held-out problems with `weights`; return the means. Without any, the
        actor returns the loss on the held-out rows."""
        if weights is None:
            key, started = self._key("evaluate", step), time.perf_counter()
            judged: Evaluation = await self.compute.call("actor", "evaluate", key=key, step=step)
            return dataclasses.replace(
                judged,
                num_problems=self.run.info.num_eval_problems,
                timing=_with_wait(judged.timing, started),
            )
        return await evaluation.evaluate(self.run, self.call, step, weights)

    def forget(self, before: int) -> None:
        """Drop what is kept for steps before this one. Here nothing is."""

    # the run's beginning and end

    async def warm_start(self, problems: FileRef) -> StageTiming:
        """Build and warm-start the first model, if the configuration asks for it."""
        started = time.perf_counter()
        key = self._key("warm_start", 0)
        await self.compute.call("actor", "build_base_model", key=key, problems=problems)
        return StageTiming(stage="warm_start", step=0, busy_s=time.perf_counter() - started)

    async def start_workers(self, step: int) -> ActorReady:
        """Bring the actor to `step` and start the other workers at the same time; one ready rollout
        worker is enough to begin."""
        started = time.perf_counter()
        key = self._key("start_workers", step)
        publish = self.schedule.publishes(0)
        others: list[Role] = [role for role in ROLES if role != "actor" and role in self.roles]
        ready: ActorReady
        ready, *_ = await asyncio.gather(
            self.compute.call("actor", "prepare", key=key, step=step, publish=publish),
            *map(self.compute.start, others),
        )
        seconds = time.perf_counter() - started
        timing = StageTiming(stage="start_workers", step=step, busy_s=seconds)
        return dataclasses.replace(ready, timing=timing)

    async def save_final(self) -> FinalModel:
        step = self.run.num_steps
        key = self._key("save_final", step)
        saved: FinalModel = await self.compute.call("actor", "save_final", key=key, step=step)
        return saved

    async def call(
        self,
        kind: type[Answer],
        role: Role,
        method: str,
        request: GenerateRequest | RewardRequest | TrainRequest | HarnessRequest,
    ) -> Answer:
        """Make a request whose answer has a timing, and add the waiting time to that timing."""
        index = 0 if isinstance(request, TrainRequest) else request.shard
        started = time.perf_counter()
        key = self._key(getattr(request, "stage", method), request.step, index)
        answer: Answer = await self.compute.call(role, method, key=key, request=request)
        if isinstance(answer, RewardRef):
            self.budget.learn(answer.judges)
        return dataclasses.replace(answer, timing=_with_wait(answer.timing, started, index))

    def _key(self, stage: str, step: int, index: int = 0) -> str:
        return f"{stage}/{step}/{index}"


def _with_wait(timing: StageTiming, started: float, index: int = 0) -> StageTiming:
    """Return the worker's timing, with the rest of the call's wall time added as waiting time."""
    wait = max(0.0, time.perf_counter() - started - timing.busy_s)
    return dataclasses.replace(timing, index=index, wait_s=wait)
