"""What train steps are given: the kinds of `Batch` that algorithms train on, a file each."""

from mortal_steps.policy.batches.base import Batch, TrainRequest
from mortal_steps.policy.batches.dataset_rows import RowBatch, Rows
from mortal_steps.policy.batches.prepared_rows import PreparedRows
from mortal_steps.policy.batches.scored_rollouts import ScoredRollouts

__all__ = ["Batch", "PreparedRows", "RowBatch", "Rows", "ScoredRollouts", "TrainRequest"]
