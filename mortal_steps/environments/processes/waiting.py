"""What the episodes of a shard wait for: in the worker's log, and in a file for `mortal status`.

    steps/000012/generations-0-calls/waiting.json
        {"round": 3, "num_waiting": 2, "num_episodes": 64, "named": "tool search", ...}

The file is there while answers are missing, and is written again every few seconds: one that is
older was left by a process that was killed.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.environments.messages import EpisodeKey, ToolCall
from mortal_steps.environments.processes.faults import named
from mortal_steps.store.files import write_json

WAITING_FILE = "waiting.json"
TELL_EVERY_S = 5.0
"""Seconds between two writes of the file, and before the first write."""
LEFT_AFTER_S = 6 * TELL_EVERY_S
LOG_AFTER_S = 30.0
"""Seconds until a wait is first logged; each further line comes after twice as long."""
MOST_TOLD = 3
"""Episodes that a line names, at most."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """Answers that are missing in a shard."""

    round: int
    """Number of the round, counted from 1; 0 is `reset`."""
    num_waiting: int
    """Number of episodes without an answer."""
    num_episodes: int
    """Number of episodes that were called in the round."""
    named: str
    """The calls that are waited for, such as `tool search`."""
    since: float
    """Time when the wait began, in seconds since the epoch."""
    at: float
    """Time when the file was written, in seconds since the epoch."""


class Watch:
    """Reports which answers a round of calls waits for, while the block goes on."""

    def __init__(
        self,
        folder: Path | None,
        number: int,
        cells: Iterable[Sequence[EpisodeKey]],
        asked: Mapping[EpisodeKey, Sequence[ToolCall] | None],
    ) -> None:
        """Each of `cells` answers its episodes in turn. The file goes to `folder`, if any."""
        self._file = None if folder is None else folder / WAITING_FILE
        self._number, self._cells, self._asked = number, list(cells), asked
        self._began, self._since = time.monotonic(), time.time()
        self._write_after_s, self._log_after_s = TELL_EVERY_S, LOG_AFTER_S

    @property
    def next_at(self) -> float:
        """Time (monotonic) of the next report."""
        return self._began + min(self._write_after_s, self._log_after_s)

    def tell(self, answered: Collection[EpisodeKey]) -> None:
        """Write and log which answers are missing: of each cell, the episode whose turn it is."""
        waiting = [each for each in self._asked if each not in answered]
        turns = (next((e for e in cell if e not in answered), None) for cell in self._cells)
        now = [each for each in turns if each is not None]
        seconds = time.monotonic() - self._began
        if seconds >= self._log_after_s:
            self._log_after_s *= 2
            self._log(now, len(waiting), seconds)
        if seconds >= self._write_after_s:
            self._write_after_s = seconds + TELL_EVERY_S
            self._write(now, len(waiting))

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def _log(self, now: Sequence[EpisodeKey], count: int, seconds: float) -> None:
        shown = [f"{named(self._asked[e])} of {e[0]}, generation {e[1]}" for e in now[:MOST_TOLD]]
        logger.warning(
            "%d of %d episodes have had no answer for %.0f s: %s%s",
            count,
            len(self._asked),
            seconds,
            "; ".join(shown),
            "; ..." if len(now) > MOST_TOLD else "",
        )

    def _write(self, now: Sequence[EpisodeKey], count: int) -> None:
        if self._file is None:
            return
        names = list(dict.fromkeys(named(self._asked[each]) for each in now))
        waiting = Waiting(
            round=self._number,
            num_waiting=count,
            num_episodes=len(self._asked),
            named=", ".join(names[:MOST_TOLD]) + (", ..." if len(names) > MOST_TOLD else ""),
            since=self._since,
            at=time.time(),
        )
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._file, dataclasses.asdict(waiting))


def waiting_in(folder: Path) -> dict[str, Waiting]:
    """Return what the shards in a step's folder wait for now, by their files."""
    found = {}
    for file in sorted(folder.glob(f"generations-*-calls/{WAITING_FILE}")):
        try:
            waiting = Waiting(**json.loads(file.read_bytes()))
        except (FileNotFoundError, ValueError, TypeError):  # it has ended meanwhile
            continue
        if time.time() - waiting.at < LEFT_AFTER_S:
            found[file.parent.name.split("-")[1]] = waiting
    return found
