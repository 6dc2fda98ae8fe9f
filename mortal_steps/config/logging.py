"""`[logging]` and `[alerts]`: what is reported, and where."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints, field_validator

from mortal_steps.config.section import Section
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
LONGEST_NAME = 128
"""Characters of a name that W&B takes."""
Named = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME)]


class LoggingConfig(Section):
    """`[logging]`: what is reported, and where."""

    report_to: tuple[TrackerName, ...] = ()
    """Trackers that follow the run: `wandb`, `tensorboard`, `trackio`, or one of your own as
    `module:Class`."""
    project: Named = "mortal"
    """Project of the trackers."""
    group: Named | None = None
    """Group of runs that the run belongs to, in trackers that have groups."""
    run_name: Named | None = None
    """Name of the run in the trackers; by default its id."""
    tags: tuple[Named, ...] = ()
    """Tags of the run in the trackers."""
    sample_steps: int = Field(20, ge=0)
    """Steps between two tables of completions, with prompts and rewards, in the trackers. 0: there
    are none."""
    segment_steps: int | None = Field(None, ge=1)
    """Steps of each segment in which the Prefect UI shows a run, a flow run of its own. By default
    10, or as many as make 50 segments of a long run."""
    server_timeout_s: float = Field(300.0, ge=0)
    """Seconds for which a run continues while its Prefect server does not answer; after that it
    saves its state and stops."""

    @field_validator("report_to", mode="before")
    @classmethod
    def _one_is_a_list_of_one(cls, names: Any) -> Any:
        if names == "none":  # as TRL has it
            return ()
        return (names,) if isinstance(names, str) else names

    @field_validator("report_to")
    @classmethod
    def _each_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(names))


class AlertsConfig(Section):
    """`[alerts]`: when a run reports that something is wrong with it. It goes on all the same."""

    reward_window: int = Field(10, ge=2)
    """Steps of the moving mean of the training reward that `reward_drop` is about."""
    reward_drop: float = Field(0.5, gt=0)
    """The reward has collapsed when its moving mean is below its best by more than this part of the
    best, and by more than chance (six standard errors), for `reward_drop_steps` steps in a row."""
    reward_drop_steps: int = Field(5, ge=1)
    """See `reward_drop`."""
    masked_share: float = Field(0.1, ge=0, le=1)
    """Report when more than this share of a step's completions is masked, because a reward function
    failed on them."""
    evaluation_drop: float = Field(0.1, gt=0)
    """An evaluation has regressed when its reward is below the best one's by more than this part of
    the best."""
    slow_step_factor: float = Field(5.0, gt=1)
    """A step is slow when it takes longer than this factor times the median of the 50 steps before
    it. At least ten steps of the same process are needed for that. Evaluations and checkpoints do
    not count."""
    slow_step_s: float = Field(30.0, ge=0)
    """A step that takes less than this many seconds is never slow."""
    cost_share: float = Field(0.8, gt=0, le=1)
    """Report when this share of `compute.modal.max_cost` is spent."""
    quiet_steps: int = Field(50, ge=0)
    """A condition that persists, or returns within this many steps, is reported once."""
