"""The worker that scores completions: plain functions in a process of their own."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Sequence
from pathlib import Path

from mortal_steps.config import RunConfig
from mortal_steps.errors import CorruptFileError, RewardError
from mortal_steps.rewards.base import (
    RewardFunction,
    TrainerState,
    reward_weights,
    total_reward,
)
from mortal_steps.rewards.dispatch import score
from mortal_steps.rewards.loading import load_reward
from mortal_steps.rewards.names import reward_names
from mortal_steps.store import RunStore
from mortal_steps.types import (
    Completion,
    FileRef,
    GeneratedGroup,
    GeneratedShard,
    PolicyVersion,
    Problem,
    RewardedShard,
    RewardRef,
    RewardRequest,
    StageTiming,
)

logger = logging.getLogger(__name__)

MADE_UP_TEXT = "a made-up completion"


class RewardWorker:
    """Scores shards of one run. Functions are imported at the first call that needs them."""

    def __init__(self, *, run_dir: str, config: RunConfig, num_steps: int) -> None:
        self._store = RunStore(Path(run_dir))
        self._config = config
        self._num_steps = num_steps

    def start(self) -> None:
        """Import the functions; raises `RewardError` if one cannot be."""
        _ = self._functions

    def rehearse(self, *, problems: Sequence[Problem]) -> None:
        """Call each function once on a made-up completion of each problem; commits nothing.

        Raises `RewardError` for a function that cannot be imported, raises, or returns anything
        but scores.
        """
        self.start()
        if problems:
            score(self._functions, self._names, _made_up(problems), self._trainer_state(0))

    def reward(self, *, request: RewardRequest) -> RewardRef:
        """Score a shard and commit the scores at `request.output`.

        Scores of the same generations that are there already, whole, are the answer. Raises
        `RewardError`, or `CorruptFileError` if the generations are not those asked for.
        """
        started = time.perf_counter()
        generation = request.generation
        file, rewarded = self._committed(request) or self._score(request)
        reward_sum, num_scored = total_reward(rewarded, reward_weights(self._config))
        return RewardRef(
            step=generation.step,
            shard=generation.shard,
            file=file,
            generation=generation,
            reward_sum=reward_sum,
            num_scored=num_scored,
            timing=StageTiming(
                stage=request.stage,
                step=generation.step,
                index=generation.shard,
                busy_s=time.perf_counter() - started,
            ),
        )

    def _committed(self, request: RewardRequest) -> tuple[FileRef, RewardedShard] | None:
        try:
            found = self._store.find_record(request.output, RewardedShard)
        except CorruptFileError as error:
            logger.warning("scoring %s again: %s", request.output, error)
            return None
        if found and found[1].generation_sha256 == request.generation.file.sha256:
            return found
        return None

    def _score(self, request: RewardRequest) -> tuple[FileRef, RewardedShard]:
        generation = request.generation
        shard = self._store.read_record(generation.file, GeneratedShard)
        scores = score(self._functions, self._names, shard, self._trainer_state(shard.step))
        rewarded = RewardedShard(
            step=generation.step,
            shard=generation.shard,
            generation_sha256=generation.file.sha256,
            rewards=scores.rewards,
            metrics=scores.metrics,
            extra=scores.extra,
        )
        return self._store.write_record(request.output, rewarded, RewardedShard), rewarded

    @functools.cached_property
    def _functions(self) -> list[RewardFunction]:
        specs = self._config.rewards.functions
        for spec in specs:
            if specs.count(spec) > 1:
                raise RewardError(
                    f"rewards.functions names {spec!r} twice; name it once and give it a weight"
                )
        return [load_reward(spec) for spec in specs]

    @property
    def _names(self) -> Sequence[str]:
        return reward_names(self._config)

    def _trainer_state(self, step: int) -> TrainerState:
        updates = self._config.training.optimizer_steps_per_batch
        return TrainerState(global_step=step * updates, max_steps=self._num_steps * updates)


def _made_up(problems: Sequence[Problem]) -> GeneratedShard:
    version = PolicyVersion(0)
    completion = Completion(
        token_ids=[0],
        logprobs=[0.0],
        text=MADE_UP_TEXT,
        finish_reason="stop",
        seed=0,
        policy_version=version,
    )
    groups = [
        GeneratedGroup(problem=problem, prompt_ids=[0], completions=[completion])
        for problem in problems
    ]
    return GeneratedShard(step=0, shard=0, policy_version=version, groups=groups)
