"""The first shard of a run with tools, sampled in this process, which a test kills meanwhile.

python -m tests.support.environments.killed_shard FOLDER FACTORY

FACTORY: a class in code.py, `-` for tools alone, or one that asks itself (`AGENTS`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.environments.cases import Case, asking, build
from tests.support.environments.mortal import Workers

AGENTS = {"agent": "shopping", "dated": "dated"}
"""Functions in agents.py."""


def main(folder: Path, factory: str) -> None:
    """Sample it."""
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


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
