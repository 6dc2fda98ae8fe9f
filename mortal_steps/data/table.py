"""The table of kinds of datasets whose rows are made by code."""

from mortal_steps.extensions import Registry, simple

REASONING_GYM = "reasoning_gym"
"""The source whose rows contain what the verifier of their task needs."""
DATASET_SOURCES = Registry(
    "data.source",
    simple({REASONING_GYM: "mortal_steps.data.sources.reasoning_gym_tasks:read_task"}),
)
"""Each is a `DatasetSource` (mortal_steps/data/sources/base.py), written `KIND:TASK`; a user's own
is `file.py:name` or `module:name`. Anything else is a file, a folder or a dataset of the hub."""
