"""Commits rollouts that were made elsewhere as the batch of a step, one shard per step; for batch
sources of your own."""

from collections.abc import Sequence

from mortal_steps.orchestration.batch_sources.base import StepBatch
from mortal_steps.orchestration.session import Session
from mortal_steps.policy.batches import ScoredRollouts
from mortal_steps.scores import reward_weights, total_reward
from mortal_steps.store.records import step_file
from mortal_steps.types import (
    BatchRef,
    FileRef,
    GeneratedGroup,
    GeneratedShard,
    GenerationRef,
    Problem,
    RewardedShard,
    RewardRef,
    RolloutGroup,
    StageTiming,
)


def commit(session: Session, step: int, groups: Sequence[RolloutGroup]) -> StepBatch:
    """Commit scored rollouts as the batch of a step.

    A batch has `training.batch_size` groups of `training.num_generations` rollouts. Each rollout
    has a score from each of the run's rewards, by its name, and was sampled with a version of this
    run that is not newer than `step`. The actor raises `StoreError` for rollouts that do not make a
    batch.
    """
    problems = [group.problem for group in groups]
    generated = GeneratedShard(
        step=step,
        shard=0,
        policy_version=min(
            rollout.completion.policy_version for group in groups for rollout in group.rollouts
        ),
        groups=[
            GeneratedGroup(
                problem=group.problem,
                prompt_ids=group.prompt_ids,
                completions=[rollout.completion for rollout in group.rollouts],
            )
            for group in groups
        ],
    )
    store = session.store
    batch_file = store.write_record(step_file("get_batch", step), problems, list[Problem])
    generated_file = store.write_record(step_file("generate", step), generated, GeneratedShard)
    rewarded = RewardedShard(
        step=step,
        shard=0,
        generation_sha256=generated_file.sha256,
        rewards=[[rollout.rewards for rollout in group.rollouts] for group in groups],
    )
    rewarded_file = store.write_record(step_file("reward", step), rewarded, RewardedShard)
    files = (batch_file, generated_file, rewarded_file)
    return _references(session, files, problems, generated, rewarded)


def recorded(session: Session, step: int) -> StepBatch | None:
    """Return what a killed run committed for a step, if it is whole."""
    store, otherwise = session.store, f"step {step} is asked for again"
    batch = store.find_whole(step_file("get_batch", step), list[Problem], otherwise)
    generated = store.find_whole(step_file("generate", step), GeneratedShard, otherwise)
    rewarded = store.find_whole(step_file("reward", step), RewardedShard, otherwise)
    if batch is None or generated is None or rewarded is None:
        return None
    if rewarded[1].generation_sha256 != generated[0].sha256:
        return None
    files = (batch[0], generated[0], rewarded[0])
    return _references(session, files, batch[1], generated[1], rewarded[1])


def _references(
    session: Session,
    files: tuple[FileRef, FileRef, FileRef],
    problems: Sequence[Problem],
    generated: GeneratedShard,
    rewarded: RewardedShard,
) -> StepBatch:
    step = generated.step
    completions = [completion for group in generated.groups for completion in group.completions]
    generation = GenerationRef(
        step=step,
        shard=0,
        file=files[1],
        num_completions=len(completions),
        num_tokens=sum(completion.num_sampled for completion in completions),
        policy_version=generated.policy_version,
        timing=StageTiming(stage="generate", step=step),
    )
    reward_sum, num_scored = total_reward(rewarded, reward_weights(session.run.config.rewards))
    reward = RewardRef(
        step=step,
        shard=0,
        file=files[2],
        generation=generation,
        reward_sum=reward_sum,
        num_scored=num_scored,
        timing=StageTiming(stage="reward", step=step),
    )
    timing = StageTiming(stage="get_batch", step=step)
    batch = BatchRef(step=step, file=files[0], num_problems=len(problems), timing=timing)
    return StepBatch(batch, ScoredRollouts(rewards=[reward]))
