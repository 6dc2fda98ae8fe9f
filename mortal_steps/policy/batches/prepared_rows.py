"""Rows of a dataset that was prepared once, by their places in the order of an epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mortal_steps.policy.batches.base import Batch
from mortal_steps.store import RunStore
from mortal_steps.types import FileRef


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochOrder:
    """The rows of an epoch, in the order in which they are trained on."""

    epoch: int
    micro_batches: Sequence[Sequence[int]]
    """Indices of prepared rows, a micro-batch each. With a sampler that balances lengths, they have
    different sizes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowIndices:
    """What one train step trains on."""

    step: int
    order: EpochOrder
    first: int
    """The first of its micro-batches in the order."""
    stop: int
    """The one after its last micro-batch."""


@dataclass(frozen=True, kw_only=True)
class PreparedRows(Batch):
    """Micro-batches [first, stop) of an epoch, of rows that were prepared once; read as
    `RowIndices`."""

    kind = "prepared_rows"
    dataset: FileRef
    """The prepared rows, an Arrow file."""
    order: FileRef
    """Record of the `EpochOrder`."""
    first: int
    stop: int
    num_rows: int
    """Rows in these micro-batches."""

    def files(self) -> list[FileRef]:
        return [self.order]

    def content(self, store: RunStore) -> dict[str, Any]:
        prepared = [self.dataset.sha256, self.order.sha256]
        return {"prepared": prepared, "micro_batches": [self.first, self.stop]}

    def read(self, store: RunStore, step: int, plan: Any) -> RowIndices:
        order = _order(store, self.order)
        return RowIndices(step=step, order=order, first=self.first, stop=self.stop)

    def counts(self) -> Mapping[str, float]:
        return {"num_prepared_rows": self.num_rows}


_read: dict[FileRef, EpochOrder] = {}
"""The order that was read last. That of a million rows takes a while to read, and serves an
epoch."""


def _order(store: RunStore, file: FileRef) -> EpochOrder:
    if file not in _read:
        order = store.read_record(file, EpochOrder)
        _read.clear()
        _read[file] = order
    return _read[file]
