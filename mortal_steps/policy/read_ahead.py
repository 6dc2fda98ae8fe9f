"""Reads the shards of a step once each, some of them before the step is asked for.

The actor is idle while completions are scored, and their files are most of what it reads.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, TypeVar

from mortal_steps.errors import CorruptFileError, StoreError
from mortal_steps.store import RunStore
from mortal_steps.types import FileRef, GeneratedShard, GenerationRef

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ReadAhead:
    """Records of one step, which were verified when they were read."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._read: dict[FileRef, Any] = {}

    def look_at(self, generations: Sequence[GenerationRef]) -> None:
        """Read what a step will need. What cannot be read is skipped: the train step reads it
        again, and reports what is wrong."""
        self.forget()
        for generation in generations:
            try:
                self.read_record(generation.file, GeneratedShard)
            except (CorruptFileError, StoreError) as error:
                logger.info("not read ahead of time: %s", error)

    def read_record(self, ref: FileRef, kind: type[T]) -> T:
        """See `RecordStore.read_record`; the same reference is read from disk once."""
        if ref not in self._read:
            self._read[ref] = self._store.read_record(ref, kind)
        body: T = self._read[ref]
        return body

    def forget(self) -> None:
        """Free the memory; the step has what it needs."""
        self._read.clear()
