"""What a tracker is: it receives each step of a run exactly once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mortal_steps.report.trackers import FOLDER
from mortal_steps.runs.run import Run

STEP = "train/global_step"
"""The value that every entry has."""
SAMPLES = "samples"
"""Name of the table of completions."""
COLUMNS = ("kind", "problem", "prompt", "completion", "reward")
"""Columns of that table."""
LONGEST_PREFIX = 90
"""Characters of a run's id in `TrackedRun.id`; W&B takes 128 in all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackedRun:
    """What a tracker needs to know about the run."""

    id: str
    """The same for all attempts of a run, and different for other runs: the run's id and a part of
    its uid."""
    name: str
    """What people call it."""
    project: str
    group: str | None
    tags: Sequence[str]
    folder: Path
    """Where the tracker keeps its files; not made yet."""
    config: Mapping[str, Any]
    """The configuration as JSON has it, without environment variables of workers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """Everything that a tracker receives about one step."""

    step: int
    """Train steps done; 0 for the evaluation before the first."""
    values: Mapping[str, float]
    """Such as `train/reward`, `eval/reward`, `time/generate_s`; `STEP` is one of them."""
    samples: Sequence[Sequence[Any]] = ()
    """Rows of a table with `COLUMNS`; most steps have none."""


class Tracker(Protocol):
    """One run in one tracker. Made in a process of its own, with a `TrackedRun`.

    Any error that it raises ends that process; another one goes on later. A process may also be
    killed at any moment.
    """

    def last_step(self) -> int | None:
        """Return the last step that the tracker's own record holds for good, or None: the run goes
        on after it, so it is read from where steps are stored."""
        ...

    def log(self, entry: Entry) -> None:
        """Store the next step: all of its values or, after a kill, none of them."""
        ...

    def flush(self) -> None:
        """Write out what was logged; there is no further step for the moment."""
        ...

    def close(self) -> None:
        """Finish; the run has ended, or the process is about to end."""
        ...


def tracked_run(run: Run, config: Mapping[str, Any]) -> TrackedRun:
    """Return how trackers know the run; `config` holds the plain values with which it goes on. What
    `env` of a worker holds may be secret, and is left out."""
    settings, info = config["logging"], run.info
    local = {
        name: {key: value for key, value in role.items() if key != "env"}
        for name, role in config["compute"]["local"].items()
    }
    return TrackedRun(
        id=f"{info.run_id[:LONGEST_PREFIX]}-{info.uid[:8]}",
        name=settings["run_name"] or info.run_id,
        project=settings["project"],
        group=settings["group"],
        tags=settings["tags"],
        folder=run.store.path(FOLDER).absolute(),
        config={**config, "compute": {**config["compute"], "local": local}},
    )
