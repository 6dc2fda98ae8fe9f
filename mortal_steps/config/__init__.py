"""The configuration of a run: pydantic, frozen, unknown keys refused. Imports no torch.

One module per table or few of a config TOML; `run.py` holds them together. `loader` reads files and
turns pydantic's complaints into `ConfigError`s, `reference` prints every key;
`mortal_steps.orchestration.preflight` checks what needs the disk.

Who only looks at a run reads what its config.toml says (`recorded`) without all that: the classes
are imported where the first of them is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mortal_steps.config.sections import *  # noqa: F403


def __getattr__(name: str) -> Any:
    sections = importlib.import_module("mortal_steps.config.sections")
    if name not in sections.__all__:
        raise AttributeError(f"module 'mortal_steps.config' has no attribute {name!r}")
    return getattr(sections, name)
