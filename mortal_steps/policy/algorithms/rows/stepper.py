"""A trainer of TRL's that learns from rows, taken one train step at a time."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset

from mortal_steps.errors import ActorStateError
from mortal_steps.policy import private
from mortal_steps.policy.algorithms.rows.epochs import Epochs, epochs_of
from mortal_steps.policy.algorithms.rows.preparing import (
    SUFFIX,
    first_row,
    open_prepared,
    write_rows,
)
from mortal_steps.policy.algorithms.rows.streams import Streams, draw_loader_seed
from mortal_steps.policy.algorithms.rows.trainer import ObserverOfRows, SteppedOnRows
from mortal_steps.policy.algorithms.stepping.stepper import TrlStepper, check_finite
from mortal_steps.policy.batches.prepared_rows import EpochOrder, RowIndices
from mortal_steps.policy.gpu import on_cpu_beside_gpu
from mortal_steps.policy.ranks.world import from_all, num_ranks, rank


class RowsStepper(TrlStepper):
    """One run's trainer on prepared rows. What it holds is a function of the configuration and of
    the orders of the epochs; seeds of steps have no part in it."""

    observer_kind = ObserverOfRows
    _trainer: SteppedOnRows

    def __init__(
        self, *args: Any, prepared: Path, reference: Path | None = None, **options: Any
    ) -> None:
        """`prepared`: the folder in which the rows lie, as `preparing` writes it; `reference`: that
        of `save_reference`. Without it, what the reference model says is computed, if it is to
        be."""
        self._prepared, self._reference = prepared, reference
        super().__init__(*args, **options)
        self._evaluation = self._plan.evaluation

    def _given(self) -> Mapping[str, Any]:
        """Return TRL's arguments about rows. It looks at the first row as the user wrote it, to
        find the form of all, and then asks for them prepared."""
        row = Dataset.from_list([first_row(self._prepared)])
        held_out = [name for name in open_prepared(self._prepared) if name != "train"]
        given: dict[str, Any] = {"train_dataset": row}
        if held_out:
            given["eval_dataset"] = row if held_out == ["eval"] else dict.fromkeys(held_out, row)
        return given

    def _class_attributes(self) -> Mapping[str, Any]:
        given = open_prepared(self._reference) if self._reference else {}
        return {"prepared": open_prepared(self._prepared), "reference": given}

    @property
    def has_computed_reference(self) -> bool:
        """Whether the reference model was asked about the rows."""
        return self._reference is None and bool(self._trainer.reference)

    def save_reference(self, folder: Path) -> None:
        """Write what it said, a file for each set of rows."""
        for name, columns in self._trainer.reference.items():
            write_rows(columns, folder / f"{name}{SUFFIX}")

    def begin(self, resume_from: Path | None = None, *, renewed_at: int | None = None) -> None:
        trainer = self._trainer
        trainer.streams = Streams()  # a model that is dealt out loads into it at once
        super().begin(resume_from, renewed_at=renewed_at)
        trainer.streams = Streams()
        self._loader = trainer.callback_handler.train_dataloader
        self._rows = private.rows_for_the_model(trainer)
        self.epochs: Epochs = epochs_of(len(self._rows), self._plan.training)
        self._check_epochs()
        if resume_from is not None:
            trainer.load_control(resume_from)
        elif self._evaluation is not None and self._evaluation.on_start:
            with trainer.streams.drawn_from():
                self._pass_by_evaluation()
        trainer.gather_streams()

    def _check_epochs(self) -> None:
        """Raise `ActorStateError` if TRL's own loop would train on other rows, or have another
        number of steps an epoch."""
        prepared = len(open_prepared(self._prepared)["train"])
        if len(self._rows) != prepared:
            raise ActorStateError(
                f"TRL trains on {len(self._rows)} rows, and {prepared} are prepared"
            )
        of_a_step = self._plan.training.accumulation_steps
        steps = max(1, math.ceil(len(self._loader) / of_a_step))
        if steps != self.epochs.steps_per_epoch:
            raise ActorStateError(
                f"an epoch of {len(self._rows):,} rows has {steps:,} steps in TRL, and the run "
                f"counts {self.epochs.steps_per_epoch:,}; use the versions of the libraries with "
                "which the run began"
            )

    def draw_order(self, epoch: int) -> EpochOrder:
        """Draw the order of the epoch that begins now, and leave the streams as they are. The
        first micro-batch of each rank is followed by the second of each, and so on."""
        with self._trainer.streams.looked_at():
            drawn = from_all(self._draw_own(epoch))
        micro_batches = [each for at_once in zip(*drawn, strict=True) for each in at_once]
        return EpochOrder(epoch=epoch, micro_batches=micro_batches)

    def _draw_own(self, epoch: int) -> list[list[int]]:
        """Draw this rank's micro-batches of an epoch as TRL's loop does. Those of the default
        sampler are a function of the seed and the epoch; `group_by_length` draws from torch's
        stream, and so can only be asked where the epoch begins."""
        draw_loader_seed()
        sampler = self._loader.batch_sampler
        looped_over: tuple[Any, ...] = (self._loader, getattr(sampler, "batch_sampler", None))
        for each in looped_over:
            if hasattr(each, "set_epoch"):
                each.set_epoch(epoch)
        return [list(indices) for indices in sampler]

    def train_step(self, batch: RowIndices, *, seed: int) -> dict[str, float]:
        """Train on micro-batches of the order. Returns TRL's metrics of the step. Raises
        `ActorStateError` if TRL draws another order than the recorded one."""
        self._sums.forget()
        trainer, order = self._trainer, batch.order
        chosen = order.micro_batches[batch.first : batch.stop][rank() :: num_ranks()]
        with trainer.streams.drawn_from():
            if batch.first == 0:  # the step begins an epoch
                self._check_order(batch)
            rows = [[self._rows[index] for index in indices] for indices in chosen]
            with self._iterating(is_last=batch.stop >= len(order.micro_batches)):
                trainer.train_on([trainer.data_collator(each) for each in rows])
            metrics = self._observer.take_metrics()
            if self._evaluates_after(batch.step):
                self._pass_by_evaluation()
        trainer.gather_streams()
        if self._observer.not_finite:
            check_finite(trainer.model, batch.step, self._observer.not_finite)
        trainer.state.log_history.clear()
        return metrics

    def _check_order(self, batch: RowIndices) -> None:
        """Draw this rank's part of the order of an epoch again, and compare it with the record."""
        epoch = batch.order.epoch
        drawn = self._draw_own(epoch)
        recorded = batch.order.micro_batches[rank() :: num_ranks()]
        if drawn != [list(each) for each in recorded]:
            raise ActorStateError(
                f"step {batch.step}: TRL's sampler draws another order of epoch {epoch} than the "
                "recorded one; use the versions of the libraries with which the run began"
            )

    @contextlib.contextmanager
    def _iterating(self, *, is_last: bool) -> Iterator[None]:
        """Let accelerate find its dataloader as it is where TRL's loop takes the micro-batches of a
        step. Of the last ones of an epoch, it keeps rows that were added for some ranks out of
        metrics."""
        self._loader.begin()
        self._loader.end_of_dataloader = is_last
        try:
            yield
        finally:
            self._loader.end()

    def evaluate(self) -> dict[str, float]:
        """Return TRL's metrics of the held-out rows, by the weights as they are now."""
        with self._trainer.streams.looked_at():
            found = private.evaluate(self._trainer)
        self._trainer.state.log_history.clear()
        self._observer.take_metrics()
        metrics = {name: each for name, each in found.items() if not name.endswith(OF_THE_CLOCK)}
        for name in [name for name, value in metrics.items() if not math.isfinite(value)]:
            logger.warning("%s is %s in this evaluation and left out", name, metrics.pop(name))
        return metrics

    def held_out_sizes(self) -> dict[str, int]:
        """Return how many held-out rows each set has, by TRL's prefix of its metrics."""
        sets = self._trainer.eval_dataset
        named = sets if isinstance(sets, dict) else {"": sets}
        return {f"eval_{name}_" if name else "eval_": len(rows) for name, rows in named.items()}

    def warnings(self) -> tuple[str, ...]:
        return tuple(filter(None, [on_cpu_beside_gpu()]))

    def random_digest(self) -> str:
        return self._trainer.streams_digest()

    def _evaluates_after(self, step: int) -> bool:
        """Whether an evaluation is due after `step`. Stock TRL evaluates inside its loop, where the
        loaders of the held-out rows draw from the streams of training."""
        if self._evaluation is None or not self._evaluation.eval_steps:
            return False
        return (step + 1) % self._evaluation.eval_steps == 0 or step + 1 == self._num_steps

    def _pass_by_evaluation(self) -> None:
        sets = self._trainer.eval_dataset
        count = len(sets) if isinstance(sets, dict) else int(sets is not None)
        for _ in range(count):
            draw_loader_seed()


logger = logging.getLogger(__name__)

OF_THE_CLOCK = ("runtime", "per_second", "epoch")
"""Metrics of an evaluation that are no function of the run."""
