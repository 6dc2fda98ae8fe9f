"""What the flow asks of a worker, and what a train step is given: a union, with a kind for each
sort of algorithm."""

from collections.abc import Sequence
from dataclasses import dataclass

from mortal_steps.types.references import FileRef, GenerationRef, RewardRef, WeightsRef
from mortal_steps.types.rollouts import Problem, RolloutBatch, SamplingParams


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerateRequest:
    """Sample completions for the problems [start, stop) of a committed list of problems."""

    stage: str
    """`generate`, or `evaluate` for held-out problems."""
    step: int
    shard: int
    problems: FileRef
    """Record of `list[Problem]`."""
    start: int
    stop: int
    num_generations: int
    """Completions per problem."""
    sampling: SamplingParams
    weights: WeightsRef
    """The only version the worker may sample with."""
    output: str
    """Where the `GeneratedShard` goes, relative to the run directory. If a whole record of the same
    problems, seeds and version is there already, it is the answer and nothing is sampled."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardRequest:
    """Score one shard of completions."""

    stage: str
    """`reward`, or `evaluate` for held-out problems."""
    generation: GenerationRef
    output: str
    """Where the `RewardedShard` goes, relative to the run directory; reused if whole."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredRollouts:
    """Completions and their scores, which GRPO and RLOO train on; read as a `RolloutBatch`."""

    rewards: Sequence[RewardRef]
    """One per shard, in shard order."""

    def files(self) -> list[FileRef]:
        return [file for shard in self.rewards for file in (shard.generation.file, shard.file)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Rows of the dataset, to be trained on as they are; read as a `RowBatch`."""

    rows: FileRef
    """Record of `list[Problem]`."""
    num_rows: int

    def files(self) -> list[FileRef]:
        return [self.rows]


Batch = ScoredRollouts | Rows
"""A reference to what a train step is given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowBatch:
    """The rows of one train step."""

    step: int
    rows: Sequence[Problem]


TrainingBatch = RolloutBatch | RowBatch
"""What a `Batch` refers to, as a `Stepper` is given it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainRequest:
    """Take one train step."""

    step: int
    batch: Batch
    publish: bool
    """Whether the weights after the step are published for sampling."""
