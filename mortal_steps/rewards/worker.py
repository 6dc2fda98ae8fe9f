"""The worker that scores completions; the functions themselves run in its reward host."""

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from mortal_steps.config import RewardsConfig
from mortal_steps.errors import RewardError
from mortal_steps.rewards.base import TrainerState
from mortal_steps.rewards.judge.ledger import Spending
from mortal_steps.rewards.plan import ScoringPlan
from mortal_steps.rewards.scoring.assignments import assign
from mortal_steps.rewards.scoring.scorer import Scorer
from mortal_steps.rewards.sources import check_files
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
MADE_UP_MESSAGE = {"role": "assistant", "content": MADE_UP_TEXT}
DRY_RUN = (
    "This was the dry run: before anything starts, each reward function is called once on {}, as "
    "an answer to {} (rewards.dry_run = false skips it)."
)


class RewardWorker:
    """Scores shards of one run. Functions are imported at the first call that needs them."""

    def __init__(self, *, run_dir: str, plan: ScoringPlan, num_steps: int) -> None:
        self._store = RunStore(Path(run_dir))
        self._plan = plan
        self._num_steps = num_steps
        self._judges = Spending(self._store.root)

        self._training = self._evaluating = self._scorer(plan.rewards)
        if plan.eval_rewards is not None:
            self._evaluating = self._scorer(plan.eval_rewards)
        self._by_set = {name: self._scorer(each) for name, each in plan.set_rewards.items()}

    def _scorer(self, rewards: RewardsConfig) -> Scorer:
        assignments = assign(
            rewards,
            compute=self._plan.compute,
            gym_rows=self._plan.gym_rows,
            template_options=dict(self._plan.template_options),
            run_dir=self._store.root,
            before_start=lambda: check_files(self._store, self._plan.code, Path.cwd()),
        )
        return Scorer(assignments, reward_names(rewards), rewards)

    def start(self) -> None:
        """Import the functions of training; raises `RewardError` if one cannot be imported."""
        if not self._plan.scores_sets_alone:
            self._training.start()

    def close(self) -> None:
        """End the reward hosts, which otherwise end with this process."""
        for scorer in dict.fromkeys((self._training, self._evaluating, *self._by_set.values())):
            scorer.close()

    def dry_run(
        self,
        *,
        problems: Sequence[Problem],
        sets: Mapping[str, Sequence[Problem]] = MappingProxyType({}),
    ) -> Mapping[str, Sequence[float | None]]:
        """Call each function once on a made-up completion of each problem, and those that score the
        `sets` of evaluations on theirs; commit nothing. Return the scores of the problems by
        reward. Raises `RewardError` whatever `rewards.on_error` says."""
        scores: dict[str, Sequence[float | None]] = {}
        usual = () if self._plan.scores_sets_alone else (self._training, self._evaluating)
        for scorer in dict.fromkeys(usual):
            scores |= self._tried(scorer, problems)
        for name, its in sets.items():
            try:
                self._tried(self._by_set.get(name, self._evaluating), its)
            except RewardError as error:
                raise RewardError(f"evaluation.sets.{name}: {error}") from error
        return scores

    def _tried(
        self, scorer: Scorer, problems: Sequence[Problem]
    ) -> Mapping[str, Sequence[float | None]]:
        scorer.start()
        if not problems:
            return {}
        try:
            return scorer.dry_run(_made_up(problems), self._trainer_state(0))
        except RewardError as error:
            reason, _, trace = str(error).partition("\n")
            raise RewardError(f"{reason}\n{_told(problems)}\n{trace}".rstrip()) from error

    def reward(self, *, request: RewardRequest) -> RewardRef:
        """Score a shard and commit the scores at `request.output`.

        Scores of the same generations that are there already, whole, are the answer. A function
        that keeps failing raises `RewardError` or has its problems masked, as `[rewards]` says; a
        `MortalError` that it raises itself is raised. Raises `CorruptFileError` if the generations
        are not those asked for.
        """
        started = time.perf_counter()
        generation, evaluates = request.generation, request.stage == "evaluate"
        seconds: Mapping[str, float] = {}
        found = self._committed(request)
        if found is None:
            scorer = self._evaluating if evaluates else self._training
            scorer = self._by_set.get(request.eval_set, scorer)
            found, seconds = self._score(request, scorer)
        file, rewarded = found
        rewards = (self._plan.eval_rewards if evaluates else None) or self._plan.rewards
        rewards = self._plan.set_rewards.get(request.eval_set, rewards)
        reward_sum, num_scored = total_reward(rewarded, reward_weights(rewards))
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
        otherwise = f"scoring {request.output} again"
        found = self._store.find_whole(request.output, RewardedShard, otherwise)
        if found and found[1].generation_sha256 == request.generation.file.sha256:
            return found
        return None

    def _score(
        self, request: RewardRequest, scorer: Scorer
    ) -> tuple[tuple[FileRef, RewardedShard], Mapping[str, float]]:
        """Return the scores, committed, and the seconds in each function, no part of them."""
        file = request.generation.file
        shard = self._store.read_record(file, GeneratedShard)
        logger.info("scoring %s", request.output)
        scorer.start()
        state = self._trainer_state(shard.step)
        rewarded, seconds = scorer.score(shard, state, sha256=file.sha256)
        return (
            self._store.write_record(request.output, rewarded, RewardedShard),
            rewarded,
        ), seconds

    def _trainer_state(self, step: int) -> TrainerState:
        updates = self._plan.updates_per_step
        return TrainerState(global_step=step * updates, max_steps=self._num_steps * updates)


def _told(problems: Sequence[Problem]) -> str:
    """Return what the dry run has called the functions on."""
    texts = isinstance(problems[0].prompt, str)
    said = f"the text {MADE_UP_TEXT!r}" if texts else f"the messages {[MADE_UP_MESSAGE]}"
    return DRY_RUN.format(said, f"the prompt of {', '.join(each.id for each in problems[:3])}")


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
