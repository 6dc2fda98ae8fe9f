"""The run's schedule: pure functions of its seed and the step, never of time or of workers.

Contract 1 (which problems, which seeds) and contract 5 (which policy version samples what).
"""

import functools
import hashlib
import itertools
import math
import random
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mortal_steps.config import EvaluationConfig, RolloutConfig, TrainingConfig
from mortal_steps.types import GenerateRequest, PolicyVersion, Problem


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSchedule:
    """What is due in a run after how many train steps."""

    rollout: RolloutConfig
    evaluation: EvaluationConfig
    save_steps: int
    num_steps: int
    """Train steps of the whole run."""
    holds_evaluations: bool
    """Whether the policy is evaluated at all."""
    samples: bool = True
    """Whether the steps are sampled with the run's weights (`BatchSource.samples`)."""
    samples_held_out: bool = True
    """Whether evaluations are."""

    def sampling_version(self, step: int) -> PolicyVersion:
        return sampling_version(self.rollout, step)

    def publishes(self, step: int) -> bool:
        """Whether anybody samples with the weights after `step` train steps."""
        every = self.rollout.sync_weights_every
        due = self.samples and policy_version(step, sync_weights_every=every) == step
        return due or (self.samples_held_out and self.evaluates(step))

    def evaluates(self, step: int) -> bool:
        if not self.holds_evaluations:
            return False
        every = self.evaluation.eval_steps or self.num_steps
        if step == 0:
            return self.evaluation.on_start
        return step % every == 0 or step == self.num_steps

    def checkpoints(self, step: int) -> bool:
        """Whether the actor's state is saved after `step` train steps."""
        return step % self.save_steps == 0 or step == self.num_steps


def problem_indices(
    num_problems: int, *, batch_size: int, step: int, seed: int, shuffle: bool
) -> list[int]:
    """Rows of the dataset that step `step` trains on; length `batch_size`. Rows come in epochs,
    each a permutation of its own (or the dataset's order without `shuffle`); a batch may reach over
    the end of an epoch, so that every batch is full."""
    first = step * batch_size
    return [
        _epoch_order(num_problems, position // num_problems, seed, shuffle)[position % num_problems]
        for position in range(first, first + batch_size)
    ]


@functools.lru_cache(maxsize=2)
def _epoch_order(num_problems: int, epoch: int, seed: int, shuffle: bool) -> Sequence[int]:
    if not shuffle:
        return range(num_problems)
    order = array("L", range(num_problems))  # a list of a million numbers takes 36 MB
    random.Random(derive_seed("epoch", seed, epoch)).shuffle(order)
    return order


def num_train_steps(num_problems: int, training: TrainingConfig) -> int:
    """`max_steps`, or the batches that `num_epochs` passes fill (at least one). Of a part of a pass
    that ends within a batch, this batch counts, as it does in TRL."""
    if training.max_steps > 0:
        return training.max_steps
    whole, size = int(training.num_epochs), training.batch_size
    part = math.ceil((training.num_epochs - whole) * (num_problems // size))
    return max(1, num_problems * whole // size + part)


def shard_bounds(num_problems: int, num_shards: int) -> list[tuple[int, int]]:
    """Half-open ranges of problems per shard, sizes as even as possible, none empty."""
    num_shards = min(num_shards, num_problems)
    edges = [num_problems * shard // num_shards for shard in range(num_shards + 1)]
    return list(itertools.pairwise(edges))


def policy_version(step: int, *, staleness: int = 0, sync_weights_every: int = 1) -> PolicyVersion:
    """Return the version that samples the batch of `step`.

    With `staleness` k, weights of step t - k are the newest there can be; of those, the last
    published one counts. `sync_weights_every=3`: steps 0..7 sample with 0 0 0 3 3 3 6 6.

    Asynchronous systems bound this age, as AReaL does (https://arxiv.org/abs/2505.24298); here it
    is fixed, so that it depends on nothing but the step.
    """
    newest = max(0, step - staleness)
    return PolicyVersion(newest - newest % sync_weights_every)


def sampling_version(rollout: RolloutConfig, step: int) -> PolicyVersion:
    """`policy_version` of a run with these settings."""
    return policy_version(
        step, staleness=rollout.staleness, sync_weights_every=rollout.sync_weights_every
    )


def completion_seed(run_seed: int, step: int, problem_id: str, generation: int) -> int:
    return derive_seed("completion", run_seed, step, problem_id, generation)


def train_seed(run_seed: int, step: int) -> int:
    """Torch seed of a train step (TRL's shuffle, dropout)."""
    return derive_seed("train", run_seed, step)


def derive_seed(*parts: int | str) -> int:
    """Return a seed in [0, 2**63) from the parts, the same on every machine."""
    text = "\x1f".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def completion_seeds(
    request: GenerateRequest, batch: Sequence[Problem], run_seed: int
) -> list[list[int]]:
    """Seeds of the shard's completions by problem, in generation order. A small dataset may put the
    same problem into a batch twice. The second occurrence continues the numbering of the first
    one's generations; otherwise both would get the same completions."""
    occurrences = Counter(problem.id for problem in batch[: request.start])
    seeds_PG = []
    for problem in batch[request.start : request.stop]:
        first = occurrences[problem.id] * request.num_generations
        occurrences[problem.id] += 1
        seeds = []
        for generation in range(first, first + request.num_generations):
            if request.stage == "evaluate":
                # A set with settings of its own has the same seeds in each evaluation, so that two
                # of them are compared alike.
                step = 0 if request.eval_set else request.step
                seed = derive_seed("evaluate", run_seed, step, problem.id, generation)
            else:
                seed = completion_seed(run_seed, request.step, problem.id, generation)
            seeds.append(derive_seed("round", seed, request.round) if request.round else seed)
        seeds_PG.append(seeds)
    return seeds_PG
