"""W&B's own record of a run, `run-<id>.wandb`: which steps it holds.

The file is a log of LevelDB's kind after a header of 7 bytes: blocks of 32 KiB with chunks of
records in them. A record is a `Record` of wandb's protocol.
https://github.com/google/leveldb/blob/main/doc/log_format.md
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from wandb.proto import wandb_internal_pb2

HEADER_BYTES = 7
BLOCK_BYTES = 32 * 1024
CHUNK = struct.Struct("<IHB")
"""Checksum, length and kind of a chunk."""
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
"""Kinds of chunks: a whole record, or a part of one. 0 fills what was never written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """What a file holds of a run."""

    project: str
    """Empty where the file ends before it is told."""
    steps: tuple[int, ...]
    """As they were written."""


def read_history(path: Path) -> History:
    """Return the steps in a file; what a kill has cut off of it is not there."""
    project, steps = "", []
    for record in _records(path.read_bytes()):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            project = record.run.project
        elif kind == "history":
            steps += [
                int(json.loads(item.value_json))
                for item in record.history.item
                if "_step" in (item.key, *item.nested_key)
            ]
    return History(project=project, steps=tuple(steps))


def _records(content: bytes) -> Iterator[Any]:
    for data in _payloads(content):
        record: Any = wandb_internal_pb2.Record()
        try:
            record.ParseFromString(data)
        except DecodeError:
            return
        yield record


def _payloads(content: bytes) -> Iterator[bytes]:
    at, parts = HEADER_BYTES, b""
    while at + CHUNK.size <= len(content):
        left = BLOCK_BYTES - at % BLOCK_BYTES
        if left < CHUNK.size:
            at += left
            continue
        _, length, kind = CHUNK.unpack_from(content, at)
        if kind == 0:
            at += left
            continue
        chunk = content[at + CHUNK.size : at + CHUNK.size + length]
        if len(chunk) < length:
            return
        at += CHUNK.size + length
        parts = chunk if kind in (FULL, FIRST) else parts + chunk
        if kind in (FULL, LAST):
            yield parts
            parts = b""
