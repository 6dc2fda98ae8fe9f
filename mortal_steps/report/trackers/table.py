"""The table of trackers: names in `logging.report_to` -> classes."""

from typing import Annotated

from pydantic import AfterValidator

from mortal_steps.extensions import Extension, Registry

TRACKERS = Registry(
    "logging.report_to",
    {
        "wandb": Extension(
            factory="mortal_steps.report.trackers.wandb:WandbTracker",
            needs="wandb",
            install="pip install 'wandb>=0.25'",
        ),
        "tensorboard": Extension(
            factory="mortal_steps.report.trackers.tensorboard:TensorBoardTracker",
            needs="tensorboard",
            install="pip install 'tensorboard>=2.20'",
        ),
        "trackio": Extension(
            factory="mortal_steps.report.trackers.trackio:TrackioTracker",
            needs="trackio",
            install="pip install 'trackio>=0.30'",
        ),
    },
)
"""Each is a `Tracker` (mortal_steps/report/trackers/base.py), and is imported by the process that
follows a run alone."""
IMPORTED_BY_TRL = ("wandb", "trackio")
"""Modules of trackers that transformers and TRL import wherever they are installed. No worker logs
to one, so workers are spared them."""
TrackerName = Annotated[str, AfterValidator(TRACKERS.check)]
