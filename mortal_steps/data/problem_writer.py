"""Writing problem files (problem_files.py says what is in one).

pyarrow is imported where a file is opened, so that importing this module costs nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mortal_steps.data.row_text import Row, encode_each, encode_json
from mortal_steps.store import FORMAT
from mortal_steps.store.files import hidden_beside, sync_to_disk, writing
from mortal_steps.types import Prompt

ROWS_PER_GROUP = 1000
BYTES_PER_GROUP = 2**20
"""Bytes of text per group; a group of long prompts has fewer rows."""
METADATA = b"mortal"
"""Name of our entry in the file's metadata."""
ENCODED_AT_ONCE = 100
"""Rows encoded per call; starting the encoder takes as long as encoding a short row."""


class ProblemWriter:
    """Writes a problem file, group by group, beside its place; it appears there, whole and synced
    to disk, when the block ends without an error."""

    def __init__(self, path: Path) -> None:
        import pyarrow
        import pyarrow.parquet

        self._path = path
        self._beside = hidden_beside(path, "partial")
        self._schema = pyarrow.schema(
            [
                ("id", pyarrow.string()),
                ("prompt", pyarrow.string()),
                ("chat", pyarrow.bool_()),
                ("columns", pyarrow.string()),
            ]
        )
        self._new: list[Row] = []
        self._group: tuple[list[str], list[str], list[bool], list[str]] = ([], [], [], [])
        self._num_bytes = 0
        self.names: dict[str, None] = {}
        """Every column that a row has, in the order in which they came."""
        self.fewest = sys.maxsize
        """Columns that a row has at least."""
        self._last: list[str] | None = None
        """Columns of the last row; most rows have the same."""
        self._last_sorted: list[str] = []
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._sink = pyarrow.OSFile(os.fsencode(self._beside), "wb")  # a str must be UTF-8
            self._writer = pyarrow.parquet.ParquetWriter(
                self._sink,
                self._schema,
                compression="zstd",
                use_dictionary=False,
                write_statistics=False,
                write_page_checksum=True,
            )

    def add(self, problem_id: str, prompt: Prompt, columns: Mapping[str, Any]) -> None:
        """Add a row, whose values JSON can hold."""
        self._new.append((problem_id, prompt, columns))
        if len(self._new) >= ENCODED_AT_ONCE:
            self._encode()

    def add_table(self, table: Any) -> None:
        """Add a group of another problem file, given as a pyarrow table."""
        with writing(self._path):
            self._writer.write_table(table)

    def _encode(self) -> None:
        rows, self._new = self._new, []
        texts = encode_each(encode_json, [self._sorted(columns) for _, _, columns in rows])
        ids, prompts, chats, columns = self._group
        for problem_id, prompt, _ in rows:
            chat = not isinstance(prompt, str)
            prompts.append(encode_json(prompt) if chat else str(prompt))
            ids.append(problem_id)
            chats.append(chat)
        columns += texts
        self._num_bytes += sum(map(len, texts)) + sum(map(len, prompts[len(prompts) - len(rows) :]))
        if len(ids) >= ROWS_PER_GROUP or self._num_bytes >= BYTES_PER_GROUP:
            self._flush()

    def _sorted(self, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        """In the order that the fingerprint has; the file's metadata keeps the one they came in."""
        if list(columns) != self._last:
            self._last = list(columns)
            self._last_sorted = sorted(columns)
            self.names |= dict.fromkeys(columns)
            self.fewest = min(self.fewest, len(columns))
        return {name: columns[name] for name in self._last_sorted}

    def _flush(self) -> None:
        import pyarrow

        from mortal_steps.store.arrays import array_of

        if self._group[0]:
            columns: Sequence[Sequence[Any]] = self._group
            arrays = [
                array_of(values, field.type)
                for values, field in zip(columns, self._schema, strict=True)
            ]
            self.add_table(pyarrow.Table.from_arrays(arrays, schema=self._schema))
            self._group, self._num_bytes = ([], [], [], []), 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._complete()
        finally:
            self._writer.close()
            self._sink.close()
            self._beside.unlink(missing_ok=True)

    def _complete(self) -> None:
        self._encode()
        self._flush()
        whole = self.fewest >= len(self.names)
        known = {"format": FORMAT, "columns": list(self.names), "whole": whole}
        self._writer.add_key_value_metadata({METADATA: encode_json(known).encode()})
        with writing(self._path):
            self._writer.close()
            self._sink.close()
            sync_to_disk(self._beside)
            self._beside.rename(self._path)
            sync_to_disk(self._path.parent)
