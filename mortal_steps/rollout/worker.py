"""The rollout worker: samples shards of a step with exactly the policy version asked for."""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mortal_steps.config import RewardsConfig
from mortal_steps.errors import DataError, ModelError
from mortal_steps.models.hub import model_folder
from mortal_steps.rollout.committed import find_committed
from mortal_steps.rollout.engines.base import Engine, EngineFactory
from mortal_steps.rollout.engines.table import ALWAYS_THERE, ENGINES
from mortal_steps.rollout.episodes.base import (
    TOOL_EPISODES,
    Episodes,
    check_groups,
    episodes_of,
    tool_episodes,
)
from mortal_steps.rollout.http.endpoint import Endpoint
from mortal_steps.rollout.plan import SamplerPlan
from mortal_steps.rollout.prompts import render
from mortal_steps.rollout.weight_sync.base import weight_sync
from mortal_steps.rollout.weight_sync.canary import load_weights, log_compared
from mortal_steps.schedule import completion_seeds
from mortal_steps.store import RunStore
from mortal_steps.types import (
    FileRef,
    GeneratedShard,
    GenerateRequest,
    GenerationRef,
    HarnessAnswer,
    HarnessRef,
    HarnessRequest,
    Problem,
    StageTiming,
    WeightsRef,
)
from mortal_steps.users_code.loading import import_code

logger = logging.getLogger(__name__)

ASK_HARNESS = "mortal_steps.harnesses.running:ask_harness"
"""Function that lets a harness evaluate the weights of an engine."""


class RolloutWorker:
    """One engine and the version it holds. No answer depends on earlier ones: a fresh worker with
    the same request writes the same shard."""

    def __init__(
        self, *, run_dir: str, model_path: str, plan: SamplerPlan, num_steps: int = 1
    ) -> None:
        """`num_steps` of the whole run; a trial has one."""
        self._store = RunStore(Path(run_dir))
        self._model_path = model_path
        self._plan = plan
        self._tools = replace(plan.tools, num_updates=num_steps * plan.tools.updates_per_step)
        self._engine: Engine | None = None
        self._tokenizer: Any = None
        self._episodes: list[tuple[RewardsConfig, Episodes]] = []
        """The episodes made so far, each with the rewards that it computes."""
        self._endpoint: Endpoint | None = None
        """The server that environments outside of the run sample from."""
        self._loaded: WeightsRef | None = None
        """Weights in the engine; None while they are unproven."""
        self._not_compared: list[str] | None = None
        """Names of tensors for which only the canary speaks, once a version was loaded."""
        self._num_bytes = 0
        """Bytes of the version that was loaded last."""

    def start(self) -> None:
        """Build engine, tokenizer and episodes, once. Raises `ModelError`, `EngineError`, and
        `ConfigError` for an engine, episodes or way of syncing that cannot be imported."""
        engine = self._started_engine()
        if self._plan.rollout.ports and self._endpoint is None:
            self._endpoint = Endpoint(
                engine,
                self._read_tokenizer(),
                lambda prompt: render(
                    [prompt], self._read_tokenizer(), self._plan.template_options
                )[0],
                self._plan.rollout.ports,
                lowest_temperature=self._plan.rollout.engine_kind.lowest_temperature,
            )
        if not self._plan.environment.is_used:  # else they need what the actor commits meanwhile
            self._started_episodes("generate")
        weight_sync(self._plan.rollout)

    def sync_weights(self, *, weights: WeightsRef) -> StageTiming:
        """Load and verify a version, unless loaded. Raises `CorruptFileError`, `EngineError` or
        `WeightsMismatchError`, after which nothing is sampled until one loads."""
        began = time.perf_counter()
        self._engine_with(weights)
        busy = time.perf_counter() - began
        return StageTiming(
            stage="sync_weights",
            step=weights.version,
            busy_s=busy,
            num_bytes=self._num_bytes,
        )

    def sleep(self) -> None:
        """Have the engine free its memory until a version is loaded and verified again."""
        if self._engine is not None:
            self._loaded = None
            self._engine.sleep()

    def close(self) -> None:
        """End the processes of environments, which otherwise end with this one."""
        for _, episodes in self._episodes:
            episodes.close()

    def generate(self, *, request: GenerateRequest) -> GenerationRef:
        """Sample and commit the shard, or return the committed one if it is of the same problems,
        seeds and weights. Raises what `sync_weights` raises, and `DataError` for unusable
        prompts."""
        committed = find_committed(self._store, request, self._plan.seed)
        if committed is not None:
            return _reference(request, *committed, busy_s=0.0)
        began = time.perf_counter()
        is_loaded = self._loaded == request.weights
        synced = None if is_loaded else self.sync_weights(weights=request.weights)
        logger.info("sampling %s with v%d", request.output, request.weights.version)
        engine = self._engine_with(request.weights)
        episodes = self._started_episodes(request.stage, request.eval_set)
        try:
            with self._endpoint.paused() if self._endpoint else contextlib.nullcontext():
                shard = self._sample_shard(engine, episodes, request)
            file = self._store.write_record(request.output, shard, GeneratedShard)
        except BaseException:
            episodes.leave_progress()
            raise
        episodes.forget_progress()
        took, busy_s = episodes.took(), time.perf_counter() - began
        return _reference(request, file, shard, busy_s=busy_s, synced=synced, took=took)

    def run_harness(self, *, request: HarnessRequest) -> HarnessRef:
        """Let a harness evaluate the weights, and commit what it answers; what it has answered
        before is the answer. Raises what `sync_weights` raises, and `HarnessError`."""
        began = time.perf_counter()
        again = f"evaluating {request.output} again"
        found = self._store.find_whole(request.output, HarnessAnswer, again)
        if found is None or found[1].policy_version != request.weights.version:
            engine = self._engine_with(request.weights)
            logger.info("asking %s with v%d", request.output, request.weights.version)
            ask: Callable[..., HarnessAnswer] = import_code(ASK_HARNESS, "evaluation.sets")
            with self._endpoint.paused() if self._endpoint else contextlib.nullcontext():
                answer = ask(
                    request,
                    self._plan,
                    engine,
                    self._read_tokenizer(),
                    model_path=self._model_path,
                    before_start=lambda: self._plan.check_code(self._store),
                )
            found = self._store.write_record(request.output, answer, HarnessAnswer), answer
        busy_s = time.perf_counter() - began
        timing = StageTiming(
            stage=request.stage, step=request.step, index=request.shard, busy_s=busy_s
        )
        return HarnessRef(file=found[0], timing=timing)

    def _started_engine(self) -> Engine:
        if self._engine is not None:
            return self._engine
        self._model_path = model_folder(self._model_path, self._plan.model)
        # Before anything imports torch: an engine may set the environment that torch reads.
        build: EngineFactory = ENGINES.load(self._plan.rollout.engine or ALWAYS_THERE)
        self._engine = build(
            model_path=self._model_path,
            model=self._plan.model,
            rollout=self._plan.rollout,
            tokenizer=self._read_tokenizer,
        )
        self._read_tokenizer()
        return self._engine

    def _engine_with(self, weights: WeightsRef) -> Engine:
        """Return the engine, holding exactly `weights`."""
        engine = self._started_engine()
        if self._loaded != weights:
            with self._endpoint.loading() if self._endpoint else contextlib.nullcontext():
                self._load(engine, weights)
                if self._endpoint:
                    self._endpoint.holding(weights.version)
        return engine

    def _load(self, engine: Engine, weights: WeightsRef) -> None:
        # Unproven until the canary has passed, whatever goes wrong in between.
        self._loaded = None
        sync, tolerance = weight_sync(self._plan.rollout), self._plan.rollout.canary_tolerance
        store = self._store.holding(weights.path)
        others = load_weights(store, engine, sync, weights, tolerance)
        self._not_compared = log_compared(others, before=self._not_compared)
        self._num_bytes = store.folder_bytes(weights.path)
        self._loaded = weights

    def _sample_shard(
        self, engine: Engine, episodes: Episodes, request: GenerateRequest
    ) -> GeneratedShard:
        batch = self._store.read_record(request.problems, list[Problem])
        problems = batch[request.start : request.stop]
        if len(problems) != request.stop - request.start:
            raise DataError(
                f"{request.problems.path} holds {len(batch)} problems; asked for "
                f"{request.start} to {request.stop}"
            )
        seeds_PG = completion_seeds(request, batch, self._plan.seed)
        episodes.begin_step(request.step)
        folder = self._store.path(f"{request.output.removesuffix('.parquet')}-calls")
        episodes.keep_progress_in(folder, request.weights)
        groups = episodes.sample(
            engine, problems, seeds_PG, request.sampling, request.weights.version
        )
        name = TOOL_EPISODES if self._plan.environment.is_used else self._plan.rollout.episodes
        check_groups(name, groups, seeds_PG)
        return GeneratedShard(
            step=request.step,
            shard=request.shard,
            policy_version=request.weights.version,
            groups=groups,
        )

    def _started_episodes(self, stage: str, eval_set: str = "") -> Episodes:
        """Return what makes the completions of a stage. Stages with the same rewards share it, and
        so do all stages without an environment."""
        rewards = self._plan.eval_rewards if stage == "evaluate" else self._plan.rewards
        rewards = self._plan.set_rewards.get(eval_set, rewards)
        for computed, episodes in self._episodes:
            if computed == rewards or not self._plan.environment.is_used:
                return episodes
        tokenizer, options = self._read_tokenizer(), self._plan.template_options
        if self._plan.environment.is_used:
            made = tool_episodes(
                self._plan.environment,
                rewards,
                tokenizer,
                options,
                store=self._store,
                settings=self._tools,
                before_start=lambda: self._plan.check_code(self._store),
            )
        else:
            made = episodes_of(self._plan.rollout, tokenizer, options)
        self._episodes.append((rewards, made))
        return made

    def _read_tokenizer(self) -> Any:
        """Return the model's tokenizer, read at the first call."""
        from transformers import AutoTokenizer

        if self._tokenizer is not None:
            return self._tokenizer
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(
                self._model_path, trust_remote_code=self._plan.model.trust_remote_code
            )
        except (OSError, ValueError) as error:
            raise ModelError(f"cannot read the tokenizer of {self._model_path}: {error}") from error
        return self._tokenizer


def _reference(
    request: GenerateRequest,
    file: FileRef,
    shard: GeneratedShard,
    *,
    busy_s: float,
    synced: StageTiming | None = None,
    took: Mapping[str, float] | None = None,
) -> GenerationRef:
    completions = [completion for group in shard.groups for completion in group.completions]
    return GenerationRef(
        step=request.step,
        shard=request.shard,
        file=file,
        num_completions=len(completions),
        num_tokens=sum(completion.num_sampled for completion in completions),
        policy_version=shard.policy_version,
        timing=StageTiming(
            stage=request.stage,
            step=request.step,
            index=request.shard,
            busy_s=busy_s,
            functions=took or {},
            num_bytes=synced.num_bytes if synced else 0,
            sync_s=synced.busy_s if synced else 0.0,
        ),
    )
