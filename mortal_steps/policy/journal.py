"""What the actor was asked for and what came of it: the records a lost actor is rebuilt from.

    steps/000012/journal.json   which shards step 12 trains on, written before it is taken
    steps/000012/result.json    what it gave, written after

Also: the batch those shards make, and the chain of state ids

    id(0) = sha256(fingerprint)
    id(t+1) = sha256(id(t), digest of batch t, fingerprint, digest of the weights after step t)

Beside it runs the history id, the same chain without the weights: where two states differ, it says
whether they had other batches or, on other hardware as a rule, gave other weights.

A fork with a configuration of its own begins at sha256(the parent's id, fingerprint).
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mortal_steps.config import RolloutConfig, TrainingConfig
from mortal_steps.config.rollout import GENERATE
from mortal_steps.errors import ActorStateError, CorruptFileError, StoreError
from mortal_steps.policy.trainable import check_trainable
from mortal_steps.schedule import sampling_version
from mortal_steps.scores import weighted_sum
from mortal_steps.store import RunStore
from mortal_steps.types import (
    GeneratedGroup,
    GeneratedShard,
    PolicyVersion,
    Problem,
    RewardedShard,
    RewardRef,
    Rollout,
    RolloutBatch,
    RolloutGroup,
    RowBatch,
    Rows,
    ScoredRollouts,
    StepResult,
    TrainingBatch,
    TrainRequest,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class JournalEntry:
    """A step that the actor took or was about to take."""

    batch_sha256: str
    """Digest of the batch that the request's shards make."""
    request: TrainRequest


def write_entry(store: RunStore, entry: JournalEntry) -> None:
    store.write_record(_path(entry.request.step, "journal.json"), entry, JournalEntry)


def find_entry(store: RunStore, step: int) -> JournalEntry | None:
    """Return a step's committed entry, if any; raises `CorruptFileError`."""
    found = store.find_record(_path(step, "journal.json"), JournalEntry)
    return found[1] if found else None


def check_entry(store: RunStore, step: int) -> None:
    """Raise `CorruptFileError` unless the entry and every shard it names are whole."""
    entry = find_entry(store, step)
    if entry is None:
        raise CorruptFileError(f"{store.path(_path(step, 'journal.json'))} is missing")
    for file in entry.request.batch.files():
        store.check_record(file)


def repair_entry(store: RunStore, entry: JournalEntry) -> None:
    """Commit the entry of a step taken before, unless one that names the same files is there:
    scores made again may have other side metrics."""
    try:
        there = find_entry(store, entry.request.step)
    except CorruptFileError as error:
        logger.warning("the journal entry is written again: %s", error)
        there = None
    if there is None or there.request.batch.files() != entry.request.batch.files():
        write_entry(store, entry)


def write_result(store: RunStore, result: StepResult) -> None:
    store.write_record(_path(result.step, "result.json"), result, StepResult)


def find_result(store: RunStore, step: int) -> StepResult | None:
    """Return a step's committed result, if any; a damaged one is logged and missing."""
    otherwise = f"step {step} is taken again if it is needed"
    found = store.find_whole(_path(step, "result.json"), StepResult, otherwise)
    return found[1] if found else None


def check_replay(recorded: StepResult, replayed: StepResult) -> None:
    """Compare a replayed step with its record; other numbers are logged. Raises `ActorStateError`
    if the record belongs to another history."""
    step, batches = recorded.step, recorded.history_id
    if batches != replayed.history_id or recorded.batch_sha256 != replayed.batch_sha256:
        raise ActorStateError(
            f"replaying step {step} leads to history {replayed.history_id[:12]}, its result "
            f"is of {batches[:12]}; journal and results of this run do not belong together"
        )
    if recorded.weights_digest != replayed.weights_digest:
        logger.warning(
            "replaying step %d on the same batch gave other weights than recorded (%s, not %s): "
            "other hardware, or other versions of the libraries. The run continues with these, "
            "but its bits are no longer the same; `mortal verify` names the step where they part",
            step,
            replayed.weights_digest[:12],
            recorded.weights_digest[:12],
        )
    before, now = recorded.metrics, replayed.metrics
    # Another version may count more or fewer of them.
    if changed := {name: now[name] for name in now if before.get(name, now[name]) != now[name]}:
        logger.warning("replaying step %d gave other numbers than recorded: %s", step, changed)


def first_state_id(fingerprint: str) -> str:
    return hashlib.sha256(fingerprint.encode()).hexdigest()


def forked_state_id(state_id: str, parent_fingerprint: str, fingerprint: str) -> str:
    """Id of the state that a fork begins with. It is the parent's if nothing else was changed."""
    if fingerprint == parent_fingerprint:
        return state_id
    return hashlib.sha256(f"{state_id} {fingerprint}".encode()).hexdigest()


def next_state_id(
    state_id: str, batch_sha256: str, fingerprint: str, weights_digest: str | None = None
) -> str:
    """Id after one more batch; without a weights digest, that of the history."""
    parts = [state_id, batch_sha256, fingerprint, weights_digest]
    return hashlib.sha256(" ".join(filter(None, parts)).encode()).hexdigest()


def batch_digest(store: RunStore, request: TrainRequest) -> str:
    """Digest of a batch: step, and rows or shards' generations and scores, no side metrics."""
    given: dict[str, Any]
    if isinstance(request.batch, Rows):
        given = {"rows": request.batch.rows.sha256}
    else:
        given = {
            "shards": [
                [shard.generation.file.sha256, store.read_record(shard.file, RewardedShard).rewards]
                for shard in request.batch.rewards
            ]
        }
    content = json.dumps({"step": request.step, **given}, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """What a run's batches have to be like."""

    rollout: RolloutConfig
    training: TrainingConfig
    weights: Mapping[str, float]
    """Weight of each reward by its name."""


def read_batch(store: RunStore, expected: Expected, request: TrainRequest) -> TrainingBatch:
    """Put a step's batch together from verified files; raises as `read_rollouts`."""
    batch = request.batch
    if isinstance(batch, Rows):
        return RowBatch(step=request.step, rows=store.read_record(batch.rows, list[Problem]))
    return read_rollouts(store, expected, request.step, batch)


def read_rollouts(
    store: RunStore, expected: Expected, step: int, batch: ScoredRollouts
) -> RolloutBatch:
    """Put a step's scored rollouts together from verified shards. Raises `CorruptFileError`,
    `StoreError` for shards of no such batch, `EngineError` for an untrainable completion."""
    groups: list[RolloutGroup] = []
    versions: list[PolicyVersion] = []
    for reference in batch.rewards:
        generated = store.read_record(reference.generation.file, GeneratedShard)
        _check_origin(generated, expected.rollout, step, reference.generation.file.path)
        versions.append(generated.policy_version)
        groups.extend(_scored_groups(store, reference, generated, expected.weights))
    _check_shape(groups, expected.training, step)
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
    for group, scores in zip(generated.groups, rewarded.rewards, strict=True):
        yield _scored_group(group, scores, weights, origin=reference.generation.file.path)


def _scored_group(
    group: GeneratedGroup,
    scores: Sequence[Mapping[str, float | None]],
    weights: Mapping[str, float],
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
        rollouts.append(Rollout(completion=completion, rewards=rewards, reward=reward))
    return RolloutGroup(problem=group.problem, prompt_ids=group.prompt_ids, rollouts=rollouts)


def _check_shape(groups: Sequence[RolloutGroup], training: TrainingConfig, step: int) -> None:
    # TRL would silently drop what does not divide.
    expected = [training.num_generations] * training.batch_size
    found = [len(group.rollouts) for group in groups]
    if found != expected:
        raise StoreError(
            f"the shards of step {step} hold groups of {found} completions; the run trains on "
            f"{len(expected)} groups of {training.num_generations}"
        )


def _path(step: int, name: str) -> str:
    return f"steps/{step:06d}/{name}"
