"""`[logging]`: what is reported, and where."""

from typing import Annotated, Any

from pydantic import Field, StringConstraints, field_validator

from mortal_steps.config.section import Section
from mortal_steps.report.trackers.table import TrackerName

LONGEST_NAME = 128
"""Characters of a name that W&B takes."""
Named = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME)]


class LoggingConfig(Section):
    """`[logging]`: what is reported, and where."""

    report_to: tuple[TrackerName, ...] = ()
    """Trackers that follow the run: `wandb`, `tensorboard`, `trackio`, or one of your own
    (`file.py:Class` or `module:Class`)."""
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
