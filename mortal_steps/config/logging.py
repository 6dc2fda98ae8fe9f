"""`[logging]`: what is reported, and where."""

from __future__ import annotations

from pydantic import Field

from mortal_steps.config.section import Section


class LoggingConfig(Section):
    """`[logging]`: what is reported, and where."""

    segment_steps: int | None = Field(None, ge=1)
    """Steps of each segment in which the Prefect UI shows a run, a flow run of its own. By default
    10, or as many as make 50 segments of a long run."""
    server_timeout_s: float = Field(300.0, ge=0)
    """Seconds for which a run continues while its Prefect server does not answer; after that it
    saves its state and stops."""
