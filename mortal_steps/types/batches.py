"""What a train step is given: a union, with a kind for each sort of algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mortal_steps.types.references import FileRef, RewardRef
from mortal_steps.types.rollouts import Problem, RolloutBatch


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredRollouts:
    """Completions and their scores, which GRPO and RLOO train on; read as a `RolloutBatch`."""

    rewards: Sequence[RewardRef]
    """One per shard, in shard order."""

    def files(self) -> list[FileRef]:
        """The files that the batch is read from."""
        return [file for shard in self.rewards for file in (shard.generation.file, shard.file)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Rows of the dataset, to be trained on as they are; read as a `RowBatch`."""

    rows: FileRef
    """Record of `list[Problem]`."""
    num_rows: int

    def files(self) -> list[FileRef]:
        """The files that the batch is read from."""
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
