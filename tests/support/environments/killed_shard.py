"""The first shard of a run with tools, sampled in this process, which a test kills meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.environments.cases import Case, asking, build
from tests.support.environments.mortal import Workers
from tests.support.forking.holder import LIGHT
from tests.support.forking.patches import fork_environments_by

AGENTS = {"agent": "shopping", "dated": "dated"}
"""Functions in agents.py."""


def sample_shard(folder: Path, factory: str, light: int, held_after: int | None) -> None:
    """Sample it, and note in the files `effects` and `sampled` what was called and sampled.

    `factory`: a class in code.py, `-` for tools alone, or one that asks itself (`AGENTS`). `light`:
    where the light holder takes orders. `held_after`: so many calls begin, and the last of them
    does not end.
    """
    LIGHT.take(light)
    fork_environments_by(LIGHT, setattr)
    os.environ["HELD_AFTER"] = str(held_after or "")
    os.environ["EFFECTS"], os.environ["SAMPLED"] = str(folder / "effects"), str(folder / "sampled")
    case = Case(
        factory=None if factory == "-" else "Shop" if factory in AGENTS else factory,
        tools=("noted",) if factory == "-" else (),
        functions=("seen",),
        says="notes" if factory == "-" else "adds",
        budget=600,
        num_steps=1,
    )
    run = build(case, folder / "model")
    workers = Workers(asking(run, AGENTS[factory]) if factory in AGENTS else run, folder / "run")
    workers.sample(0)
    workers.close()
