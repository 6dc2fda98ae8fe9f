"""Rows of a dataset, which an algorithm trains on as they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mortal_steps.policy.batches.base import Batch
from mortal_steps.store import RunStore
from mortal_steps.types import FileRef, Problem


@dataclass(frozen=True, kw_only=True, slots=True)
class RowBatch:
    """The rows of one train step."""

    step: int
    rows: Sequence[Problem]


@dataclass(frozen=True, kw_only=True)
class Rows(Batch):
    """Rows of the dataset, to be trained on as they are; read as a `RowBatch`."""

    kind = ""
    rows: FileRef
    """Record of `list[Problem]`."""
    num_rows: int

    def files(self) -> list[FileRef]:
        return [self.rows]

    def content(self, store: RunStore) -> dict[str, Any]:
        return {"rows": self.rows.sha256}

    def read(self, store: RunStore, step: int, plan: Any) -> RowBatch:
        return RowBatch(step=step, rows=store.read_record(self.rows, list[Problem]))

    def counts(self) -> Mapping[str, float]:
        return {"num_rows": self.num_rows}
