"""What a run has to report to whoever is responsible for it, kept in notices.jsonl.

A notice is written down before it is sent, and has an id that follows from what it is about; that
it was sent is written down after that. So a step that is gone through again, after a kill, sends
nothing twice, and what a killed process did not get to send is sent by the next one.

The file is no part of the run's logs, which are cut back when a run goes on: it only grows. Who
appends need not hold the run's lease.
"""

import dataclasses
import logging
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from mortal_steps.runs.logs import append_lines, read_lines
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore

logger = logging.getLogger(__name__)

NOTICES = "notices.jsonl"
STILL_NEWS_S = 86400.0
"""A notice older than this many seconds is never sent."""
SENT = "sent"
"""Key of a log line that says when a notice was sent."""

Level = Literal["news", "warning", "failure"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """A fact about a run that a person may want to know."""

    id: str
    """A UUID; the same for the same fact."""
    event: str
    """Such as `mortal.reward.collapsed`."""
    level: Level
    """`news`: nothing to be done; `warning`: the run continues; `failure`: it does not."""
    step: int
    """Train steps done."""
    value: float | None
    """The number that the notice is about."""
    text: str
    """What happened, in a sentence."""
    advice: str
    """What to do about it; empty for most news."""
    at: float
    """When it was noted, seconds since the epoch."""

    @property
    def title(self) -> str:
        """Such as `reward collapsed`."""
        return " ".join(self.event.split(".")[1:])


FIELDS = frozenset(field.name for field in dataclasses.fields(Notice))


def new_notice(
    run: Run,
    event: str,
    level: Level,
    text: str,
    *,
    step: int,
    value: float | None = None,
    advice: str = "",
    which: object = "",
) -> Notice:
    """Make a notice of this run; `which` distinguishes it from others of the same event."""
    name = f"{run.info.uid}/{event}/{which}"
    return Notice(
        id=str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
        event=event,
        level=level,
        step=step,
        value=value,
        text=text,
        advice=advice,
        at=time.time(),
    )


def read_notices(store: RunStore) -> list[Notice]:
    """Return all that were noted, in order; unreadable lines are warned of and left out."""
    rows = read_lines(store.path(NOTICES), needs=("id",))
    return [Notice(**{name: row[name] for name in FIELDS}) for row in rows if row.keys() >= FIELDS]


def unsent(store: RunStore) -> list[Notice]:
    """Return the notices that were not sent and are recent enough to be sent, in order."""
    rows = read_lines(store.path(NOTICES), needs=("id",))
    sent, since = {row["id"] for row in rows if SENT in row}, time.time() - STILL_NEWS_S
    notices = read_notices(store)
    return [notice for notice in notices if notice.id not in sent and notice.at >= since]


def note(run: Run, notice: Notice) -> bool:
    """Write a notice down unless it is there; returns whether it is new. One that cannot be written
    is logged and counts as new."""
    if any(known.id == notice.id for known in read_notices(run.store)):
        return False
    _append(run.store, [dataclasses.asdict(notice)])
    return True


def mark_sent(store: RunStore, notices: Iterable[Notice]) -> None:
    _append(store, [{"id": notice.id, SENT: time.time()} for notice in notices])


def _append(store: RunStore, rows: Iterable[dict[str, Any]]) -> None:
    path = store.path(NOTICES)
    try:
        append_lines(path, rows)
    except OSError as error:
        logger.warning("%s cannot be written: %s", path, error)
