"""The worker that scores completions; the functions themselves run in its reward host."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mortal_steps.config import RunConfig
from mortal_steps.errors import CorruptFileError, RewardError
from mortal_steps.rewards.base import TrainerState
from mortal_steps.rewards.judge.ledger import Spending
from mortal_steps.rewards.scoring.scorer import Scorer, Scores
from mortal_steps.rewards.scoring.tracks import tracks_of
from mortal_steps.rewards.sources.record import check_files
from mortal_steps.scores import reward_names, reward_weights, total_reward
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
DRY_RUN = (
    "This was the dry run: before anything starts, each reward function is called once on the text "
    f"{MADE_UP_TEXT!r} (rewards.dry_run = false skips it)."
)


class _Functions:
    """The rewards of a configuration, in processes of their own."""

    def __init__(self, config: RunConfig, run_dir: Path, before_start: Callable[[], None]) -> None:
        self._config = config.rewards
        self._names = reward_names(config.rewards)
        self._tracks = tracks_of(config, run_dir, before_start)
        self._scorer = Scorer(self._tracks, self._names, config.rewards)
        self.weights = reward_weights(config.rewards)

    def start(self) -> None:
        """Import the rewards; raises `RewardError` if one cannot be imported."""
        for name in self._names:
            if self._names.count(name) > 1:
                raise RewardError(
                    f"[rewards]: {name!r} stands there twice; write it once and give it a weight, "
                    "or give each term a `name`"
                )
        for track in self._tracks:
            track.hosts[0].start()  # further ones start at the first need

    def score(self, shard: GeneratedShard, trainer_state: TrainerState) -> Scores:
        """See `Scorer.score`."""
        self.start()
        return self._scorer.score(shard, trainer_state)

    def call_once(self, shard: GeneratedShard, trainer_state: TrainerState) -> None:
        """Raise `RewardError` if a reward fails, at once and whatever `rewards.on_error` says."""
        once = self._config.model_copy(update={"retries": 0, "on_error": "raise"})
        try:
            Scorer(self._tracks, self._names, once).score(shard, trainer_state)
        except RewardError as error:
            reason, _, trace = str(error).partition("\n")
            raise RewardError(f"{reason}\n{DRY_RUN}\n{trace}".rstrip()) from error

    def close(self) -> None:
        """End the hosts, which otherwise end with this process."""
        for host in (host for track in self._tracks for host in track.hosts):
            host.release()
            host.close()


class RewardWorker:
    """Scores shards of one run. Functions are imported at the first call that needs them."""

    def __init__(self, *, run_dir: str, config: RunConfig, num_steps: int) -> None:
        self._store = RunStore(Path(run_dir))
        self._config = config
        self._num_steps = num_steps
        self._judges = Spending(self._store.root)

        def check() -> None:
            check_files(self._store, config, Path.cwd())

        self._training = self._evaluating = _Functions(config, self._store.root, check)
        if config.evaluation.functions is not None:
            self._evaluating = _Functions(config.for_evaluation(), self._store.root, check)

    def start(self) -> None:
        """Import the functions of training; raises `RewardError` if one cannot be imported."""
        self._training.start()

    def close(self) -> None:
        """End the reward hosts, which otherwise end with this process."""
        for functions in self._all():
            functions.close()

    def dry_run(self, *, problems: Sequence[Problem]) -> None:
        """Call each function once on a made-up completion of each problem; commits nothing.

        Raises `RewardError` for a function that cannot be imported or fails, at once and whatever
        `rewards.on_error` says.
        """
        for functions in self._all():
            functions.start()
            if problems:
                functions.call_once(_made_up(problems), self._trainer_state(0))

    def reward(self, *, request: RewardRequest) -> RewardRef:
        """Score a shard and commit the scores at `request.output`.

        Scores of the same generations that are there already, whole, are the answer. A function
        that keeps failing raises `RewardError` or has its problems masked, as `[rewards]` says; a
        `MortalError` that it raises itself is raised. Raises `CorruptFileError` if the generations
        are not those asked for.
        """
        started = time.perf_counter()
        generation = request.generation
        seconds: Mapping[str, float] = {}
        found = self._committed(request)
        if found is None:
            found, seconds = self._score(request)
        file, rewarded = found
        reward_sum, num_scored = total_reward(rewarded, self._asked(request).weights)
        masked: Counter[str] = Counter()
        for failure in rewarded.failures:
            masked[failure.function] += failure.num_completions
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
                functions=seconds,
            ),
            failed_calls=rewarded.failed_calls,
            masked=dict(masked),
            metrics=rewarded.metrics,
            judges=self._judges.by_file(),
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

    def _score(
        self, request: RewardRequest
    ) -> tuple[tuple[FileRef, RewardedShard], Mapping[str, float]]:
        """The scores, committed, and the seconds in each function, which are no part of them."""
        generation = request.generation
        shard = self._store.read_record(generation.file, GeneratedShard)
        scores = self._asked(request).score(shard, self._trainer_state(shard.step))
        rewarded = RewardedShard(
            step=generation.step,
            shard=generation.shard,
            generation_sha256=generation.file.sha256,
            rewards=scores.rewards,
            metrics=scores.metrics,
            extra=scores.extra,
            failures=scores.failures,
            failed_calls=scores.failed_calls,
        )
        file = self._store.write_record(request.output, rewarded, RewardedShard)
        return (file, rewarded), scores.seconds

    def _asked(self, request: RewardRequest) -> _Functions:
        return self._evaluating if request.stage == "evaluate" else self._training

    def _all(self) -> list[_Functions]:
        other = self._evaluating is not self._training
        return [self._training, self._evaluating] if other else [self._training]

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
