"""TensorBoard: event files below `tracking/tensorboard`, or below TENSORBOARD_LOGGING_DIR.

A step is one record of a file, with its checksum, so it is there as a whole or not at all. Each
process writes a file of its own, named after all before it, as TensorBoard's reader wants them.
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.text.metadata import create_summary_metadata
from tensorboard.summary.writer.record_writer import RecordWriter

from mortal_steps.report.trackers.base import COLUMNS, SAMPLES, STEP, Entry, TrackedRun

DIRECTORY_VARIABLE = "TENSORBOARD_LOGGING_DIR"
"""As transformers calls it."""
FILES = "events.out.tfevents.*"


class TensorBoardTracker:
    def __init__(self, run: TrackedRun) -> None:
        self._run = run
        elsewhere = os.environ.get(DIRECTORY_VARIABLE)
        self.folder = Path(elsewhere) / run.id if elsewhere else run.folder / "tensorboard"
        self._writer: RecordWriter | None = None

    def last_step(self) -> int | None:
        return max(recorded_steps(self.folder), default=None)

    def log(self, entry: Entry) -> None:
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in entry.values.items()]
        if entry.samples:
            values.append(_text(SAMPLES, _markdown(COLUMNS, entry.samples)))
        self._write(Event(wall_time=time.time(), step=entry.step, summary=Summary(value=values)))

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _write(self, event: Event) -> None:
        if self._writer is None:
            self._writer = self._begin()
        self._writer.write(event.SerializeToString())

    def _begin(self) -> RecordWriter:
        """Begin a new file, with what describes the run in the first of them."""
        self.folder.mkdir(parents=True, exist_ok=True)
        before = sorted(path.name for path in self.folder.glob(FILES))
        name = f"events.out.tfevents.{int(time.time()):010d}.{len(before):06d}.mortal"
        writer = RecordWriter((self.folder / name).open("xb"))
        writer.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
        if not before:
            about = {"name": self._run.name, "group": self._run.group, "tags": [*self._run.tags]}
            texts = {"run": about, "config": self._run.config}
            values = [_text(tag, _code(value)) for tag, value in texts.items()]
            event = Event(wall_time=time.time(), step=0, summary=Summary(value=values))
            writer.write(event.SerializeToString())
        return writer


def recorded_steps(folder: Path) -> Iterator[int]:
    """Yield the step of each whole record, in the order of the files."""
    for path in sorted(folder.glob(FILES)):
        for event in LegacyEventFileLoader(str(path)).Load():
            if any(value.tag == STEP for value in event.summary.value):
                yield event.step


def _text(tag: str, text: str) -> Summary.Value:
    return Summary.Value(
        tag=tag,
        metadata=create_summary_metadata(display_name=tag, description=""),
        tensor=TensorProto(
            dtype=DT_STRING, string_val=[text.encode()], tensor_shape=TensorShapeProto()
        ),
    )


def _code(value: Any) -> str:
    lines = json.dumps(value, indent=1, default=str).splitlines()
    return "\n".join(f"    {line}" for line in lines)


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    table = [list(columns), ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, row))} |" for row in table)


def _cell(value: Any) -> str:
    return "" if value is None else str(value).replace("|", "\\|").replace("\n", "<br>")
