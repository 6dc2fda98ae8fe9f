"""Where the project's own packages are, which no container of a plane is to see."""

from __future__ import annotations

from tests.support.paths import ROOT

PACKAGES = ("mortal", "flows", "tasks", "mortal_steps", "deployments", "tests", "benchmarks")


def hidden_sources() -> list[str]:
    """Options of a plane that hide them: containers run those of their image, and an editable
    installation would offer them everywhere."""
    return [part for name in PACKAGES for part in ("--hide", f"{ROOT}/{name}")]
