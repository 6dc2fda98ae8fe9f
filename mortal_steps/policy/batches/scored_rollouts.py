"""Completions and their scores, which GRPO and RLOO train on."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from mortal_steps.config import RolloutConfig, TrainingConfig
from mortal_steps.errors import StoreError
from mortal_steps.orchestration.batch_sources.table import GENERATE
from mortal_steps.policy.batches.base import Batch
from mortal_steps.policy.plan import TrainerPlan
from mortal_steps.policy.trainable import check_trainable
from mortal_steps.schedule import sampling_version
from mortal_steps.scores import weighted_sum
from mortal_steps.selection.record import Selected
from mortal_steps.store import RunStore
from mortal_steps.types import (
    FileRef,
    GeneratedGroup,
    GeneratedShard,
    PolicyVersion,
    RewardedShard,
    RewardRef,
    Rollout,
    RolloutBatch,
    RolloutGroup,
)


@dataclass(frozen=True, kw_only=True)
class ScoredRollouts(Batch):
    """Completions and their scores; read as a `RolloutBatch`."""

    kind = ""
    rewards: Sequence[RewardRef]
    """One per shard, in shard order."""
    kept: Sequence[tuple[int, ...]] | None = None
    """The groups that are trained on, each as the index of its shard here and its own in the shard,
    and the same of each part that it was continued with; None: all of them."""
    cursor: int | None = None
    """Where the batch source goes on in the dataset after this step, if that depends on scores."""
    selected: Selected | None = None
    """What a selection sampled and kept."""

    @property
    def shards(self) -> Sequence[RewardRef]:
        return self.rewards

    def files(self) -> list[FileRef]:
        return [file for shard in self.rewards for file in (shard.generation.file, shard.file)]

    def counts(self) -> Mapping[str, float]:
        if self.kept is None:
            return {}
        sampled = sum(shard.generation.num_completions for shard in self.rewards)
        found = {"num_kept_groups": len(self.kept), "num_sampled_completions": sampled}
        if self.selected is None:
            return found
        shares = {f"selection/{name}": each for name, each in self.selected.shares().items()}
        return {**found, **shares, "selection/rounds": self.selected.num_rounds}

    @property
    def selection(self) -> Selected | None:
        return self.selected

    def content(self, store: RunStore) -> dict[str, Any]:
        """Return the shards' generations and scores, and digests of what teachers said; what reward
        functions report beside scores is no part of the batch."""
        shards = []
        for shard in self.rewards:
            scored = store.read_record(shard.file, RewardedShard)
            said = [sha256(each or b"").hexdigest() for each in scored.teacher_logprobs]
            shards.append([shard.generation.file.sha256, scored.rewards, *([said] if said else [])])
        chosen = {"kept": self.kept, "cursor": self.cursor}
        return {"shards": shards} | {
            name: each for name, each in chosen.items() if each is not None
        }

    def read(self, store: RunStore, step: int, plan: TrainerPlan) -> RolloutBatch:
        """Put a step's scored rollouts together from verified shards. Raises `CorruptFileError`,
        `StoreError` for shards of no such batch, `EngineError` for an untrainable completion."""
        shards: list[list[RolloutGroup]] = []
        versions: list[PolicyVersion] = []
        for reference in self.rewards:
            generated = store.read_record(reference.generation.file, GeneratedShard)
            _check_origin(generated, plan.rollout, step, reference.generation.file.path)
            versions.append(generated.policy_version)
            scored = list(_scored_groups(store, reference, generated, plan.reward_weights))
            shards.append(scored)
        everything = [(n, m) for n, scored in enumerate(shards) for m in range(len(scored))]
        chosen = everything if self.kept is None else self.kept
        groups = [
            _joined([shards[n][m] for n, m in zip(parts[::2], parts[1::2], strict=True)])
            for parts in chosen
        ]
        _check_shape(groups, plan.training, step, may_be_fewer=self.kept is not None)
        return RolloutBatch(step=step, policy_version=min(versions), groups=groups)


def _check_origin(generated: GeneratedShard, rollout: RolloutConfig, step: int, path: str) -> None:
    """Raise `StoreError` unless the shard belongs to this step and to the version that samples it.
    A user's own batch source may use any version that existed."""
    version = sampling_version(rollout, step)
    if rollout.source == GENERATE:
        fits = generated.policy_version == version
    else:
        fits = 0 <= generated.policy_version <= step
    if generated.step != step or not fits:
        raise StoreError(
            f"{path} was sampled for step {generated.step} with version "
            f"{generated.policy_version}; step {step} wants version {version}"
        )


def _scored_groups(
    store: RunStore, reference: RewardRef, generated: GeneratedShard, weights: Mapping[str, float]
) -> Iterator[RolloutGroup]:
    rewarded = store.read_record(reference.file, RewardedShard)
    if rewarded.generation_sha256 != reference.generation.file.sha256:
        raise StoreError(
            f"{reference.file.path} scores generations {rewarded.generation_sha256[:12]}, not "
            f"{reference.generation.file.sha256[:12]}"
        )
    shape = [len(group.completions) for group in generated.groups]
    if shape != [len(scores) for scores in rewarded.rewards]:
        raise StoreError(f"{reference.file.path} does not score each completion once")
    said = iter(rewarded.teacher_logprobs or itertools.repeat(None))
    for group, scores in zip(generated.groups, rewarded.rewards, strict=True):
        yield _scored_group(group, scores, weights, said, origin=reference.generation.file.path)


def _scored_group(
    group: GeneratedGroup,
    scores: Sequence[Mapping[str, float | None]],
    weights: Mapping[str, float],
    said: Iterator[bytes | None],
    *,
    origin: str,
) -> RolloutGroup:
    rollouts: list[Rollout] = []
    for completion, rewards in zip(group.completions, scores, strict=True):
        check_trainable(completion, origin=origin, problem_id=group.problem.id)
        if set(rewards) != set(weights):
            raise StoreError(
                f"{origin}: {group.problem.id} is scored by {sorted(rewards)}, the run's functions "
                f"are {sorted(weights)}"
            )
        reward = weighted_sum(rewards, weights)
        rollouts.append(
            Rollout(
                completion=completion, rewards=rewards, reward=reward, teacher_logprobs=next(said)
            )
        )
    return RolloutGroup(problem=group.problem, prompt_ids=group.prompt_ids, rollouts=rollouts)


def _joined(parts: Sequence[RolloutGroup]) -> RolloutGroup:
    """Return the group that was sampled in these parts."""
    if len(parts) == 1:
        return parts[0]
    rollouts = [rollout for part in parts for rollout in part.rollouts]
    return replace(parts[0], rollouts=rollouts)


def _check_shape(
    groups: Sequence[RolloutGroup], training: TrainingConfig, step: int, *, may_be_fewer: bool
) -> None:
    # TRL would silently drop what does not divide.
    size, found = training.batch_size, [len(group.rollouts) for group in groups]
    if may_be_fewer and len(groups) < size and training.divides(len(groups)):
        size = len(groups)
    expected = [training.num_generations] * size
    if not found or found != expected:
        raise StoreError(
            f"the shards of step {step} hold groups of {found} completions; the run trains on "
            f"{len(expected)} groups of {training.num_generations}"
        )
