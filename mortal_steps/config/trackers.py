"""The trackers: one entry each, with what has to be known of a tracker before it is imported.

The process that follows a run imports a tracker, and nobody else does. What the configuration and
the checks before a start have to know of it stands here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from mortal_steps.config.names import checked_name


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackerKind:
    """One tracker, as seen from outside."""

    factory: str
    """`module:Class` of a `Tracker` (mortal_steps/report/trackers/base.py)."""
    needs: str
    """Module that has to be installed."""
    install: str = ""
    """How to get it."""


TRACKERS: Mapping[str, TrackerKind] = {
    "wandb": TrackerKind(
        factory="mortal_steps.report.trackers.wandb:WandbTracker",
        needs="wandb",
        install="pip install 'wandb>=0.25'",
    ),
    "tensorboard": TrackerKind(
        factory="mortal_steps.report.trackers.tensorboard:TensorBoardTracker",
        needs="tensorboard",
        install="pip install 'tensorboard>=2.20'",
    ),
    "trackio": TrackerKind(
        factory="mortal_steps.report.trackers.trackio:TrackioTracker",
        needs="trackio",
        install="pip install 'trackio>=0.30'",
    ),
}
"""By the name in `logging.report_to`."""

IMPORTED_BY_TRL = ("wandb", "trackio")
"""Modules of trackers that transformers and TRL import wherever they are installed. No worker logs
to one, so workers are spared them."""


def tracker_kind(name: str) -> TrackerKind:
    """The entry of a name; one for the tracker of a user's own that `module:name` imports."""
    return TRACKERS.get(name) or TrackerKind(factory=name, needs=name.partition(":")[0])


TrackerName = Annotated[str, AfterValidator(lambda name: checked_name(name, TRACKERS))]
"""A name in `TRACKERS`, or `module:name`."""
