"""Epochs of prepared rows: how many steps they take. Imports no torch."""

import math
from dataclasses import dataclass, field

from mortal_steps.config import TrainingConfig
from mortal_steps.types.identity import CountedFrom


@dataclass(frozen=True, kw_only=True, slots=True)
class Epochs:
    """How the steps of a run lie in epochs. A step never reaches over the end of an epoch: the
    last one of an epoch has the micro-batches that are left."""

    steps_per_epoch: int
    accumulation: int
    """Micro-batches of a step, those of all ranks."""
    counted_from: CountedFrom = field(default_factory=CountedFrom)

    def epoch(self, step: int) -> int:
        return self.counted_from.epoch + self._ahead(step) // self.steps_per_epoch

    def first_step(self, epoch: int) -> int:
        ahead = epoch - self.counted_from.epoch
        return self.counted_from.step + ahead * self.steps_per_epoch

    def begins(self, step: int) -> bool:
        """Whether `step` is the first of its epoch."""
        return self._ahead(step) % self.steps_per_epoch == 0

    def first_micro_batch(self, step: int) -> int:
        """Return where the step begins in the order of its epoch."""
        return self._ahead(step) % self.steps_per_epoch * self.accumulation

    def _ahead(self, step: int) -> int:
        return step - self.counted_from.step


def epochs_of(
    num_rows: int, training: TrainingConfig, counted_from: CountedFrom | None = None
) -> Epochs:
    """Return the epochs of so many prepared rows, as transformers' Trainer counts them."""
    accumulation = training.accumulation_steps * training.ranks
    steps = math.ceil(num_micro_batches(num_rows, training) / accumulation)
    return Epochs(
        steps_per_epoch=max(1, steps),
        accumulation=accumulation,
        counted_from=counted_from or CountedFrom(),
    )


def num_micro_batches(num_rows: int, training: TrainingConfig) -> int:
    """Return the micro-batches of an epoch, those of all ranks."""
    size, accumulation = micro_batch_size(training), training.accumulation_steps * training.ranks
    balanced = training.trl.get("train_sampling_strategy") == "batch_rebalance"
    # What is dropped is no whole micro-batch of each rank or, with balanced ones, no whole step.
    pieces = accumulation if balanced else training.ranks
    wholes, rest = divmod(num_rows, size * pieces)
    micro_batches = wholes * pieces
    if rest and not training.trl.get("dataloader_drop_last"):
        micro_batches += pieces
    return micro_batches


def num_steps(
    num_rows: int, training: TrainingConfig, counted_from: CountedFrom | None = None
) -> int:
    """Return the train steps of a run: `max_steps`, or as many as `num_epochs` takes."""
    if training.max_steps > 0:
        return training.max_steps
    begun = counted_from or CountedFrom()
    steps_per_epoch = epochs_of(num_rows, training).steps_per_epoch
    return begun.step + math.ceil((training.num_epochs - begun.epoch) * steps_per_epoch)


def micro_batch_size(training: TrainingConfig) -> int:
    """Rows of a rank's micro-batch: those of a step (`batch_size`), dealt out evenly."""
    return max(1, training.batch_size // (training.accumulation_steps * training.ranks))
