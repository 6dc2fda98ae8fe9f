"""Rows of the dataset, prepared once, in the order of each epoch that the actor draws."""

import time
from typing import Any

from mortal_steps.orchestration.batch_sources.base import BatchSource, StepBatch
from mortal_steps.orchestration.session import Session
from mortal_steps.policy.algorithms.rows.epochs import Epochs, epochs_of
from mortal_steps.policy.batches.prepared_rows import EpochOrder, PreparedRows
from mortal_steps.report.units import counted
from mortal_steps.types import BatchRef, FileRef, StageTiming


class RowsOfTheDataset(BatchSource):
    """Gives each step its part of the epoch's order. Nothing is sampled."""

    roles = ()
    samples = False
    supplies = PreparedRows

    def __init__(self, *, session: Session, workers: Any) -> None:
        self._session = session
        info = session.run.info
        assert info.prepared_rows is not None and info.num_prepared is not None
        self._dataset: FileRef = info.prepared_rows
        self._num_rows: int = info.num_prepared
        self._epochs: Epochs = epochs_of(
            self._num_rows, session.run.config.training, info.counted_from
        )
        self._order: tuple[int, FileRef, EpochOrder] | None = None
        """The order of the epoch under way: its number, its record, and the order itself."""

    def supplied_in_words(self) -> str:
        return counted(self._num_rows, "row")

    def has_at_hand(self, step: int) -> bool:
        return self._order is not None and self._order[0] == self._epochs.epoch(step)

    async def take(self, step: int) -> StepBatch:
        started = time.perf_counter()
        file, order = await self._order_of(step)
        first = self._epochs.first_micro_batch(step)
        stop = min(first + self._epochs.accumulation, len(order.micro_batches))
        batch = PreparedRows(
            dataset=self._dataset,
            order=file,
            first=first,
            stop=stop,
            num_rows=sum(map(len, order.micro_batches[first:stop])),
        )
        timing = StageTiming(stage="get_batch", step=step, busy_s=time.perf_counter() - started)
        drawn = BatchRef(step=step, file=file, num_problems=batch.num_rows, timing=timing)
        return StepBatch(drawn, batch)

    async def _order_of(self, step: int) -> tuple[FileRef, EpochOrder]:
        epoch = self._epochs.epoch(step)
        if self._order is None or self._order[0] != epoch:
            first = self._epochs.first_step(epoch)
            file = await self._session.draw_order(epoch, first)
            order = self._session.store.read_record(file, EpochOrder)
            self._order = epoch, file, order
        return self._order[1], self._order[2]
