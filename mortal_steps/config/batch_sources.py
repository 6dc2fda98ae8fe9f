"""The table of batch sources, by their names in the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator

from mortal_steps.config.names import checked_name

GENERATE = "generate"
"""The run's own workers sample and score each step."""
BATCH_SOURCES: Mapping[str, str] = {
    GENERATE: "mortal_flows.rollouts:Rollouts",
}
"""`module:name` of each `BatchSourceFactory` (mortal_steps/orchestration/batch_source.py)."""

BatchSourceName = Annotated[str, AfterValidator(lambda name: checked_name(name, BATCH_SOURCES))]
"""A name in `BATCH_SOURCES`, or `module:name`."""
