"""The table of batch sources: names in `rollout.source` -> what supplies each step's batch."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from mortal_steps.extensions import Extension, Registry

GENERATE = "generate"
"""The run's own workers sample and score each step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceKind(Extension):
    """What is known of a batch source before it is imported."""

    options: str | None = None
    """`module:name` of the class of its `rollout.source_options`; None: it takes anything."""
    brings_data: bool = False
    """Whether its steps are made of something else than the rows of `data.source`."""


BATCH_SOURCES = Registry(
    "rollout.source",
    {
        GENERATE: SourceKind(
            factory="mortal_steps.orchestration.batch_sources.selecting:own_rollouts"
        ),
        "rows": SourceKind(
            factory="mortal_steps.orchestration.batch_sources.rows:RowsOfTheDataset"
        ),
        "atropos": SourceKind(
            factory="mortal_steps.orchestration.batch_sources.atropos:AtroposBatches",
            options="mortal_steps.atropos.options:AtroposOptions",
            brings_data=True,
        ),
    },
)
"""Each is a `BatchSourceFactory` (mortal_steps/orchestration/batch_sources/base.py)."""

BatchSourceName = Annotated[str, AfterValidator(BATCH_SOURCES.check)]
