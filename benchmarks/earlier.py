"""The code of another commit, to be measured beside this one."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.jobs import ROOT

NAMED = {"mortal_flows": "flows", "mortal_tasks": "tasks", "mortal_deployments": "deployments"}
"""Packages that lie in folders of another name."""
SAME = ("mortal", "mortal_steps", "benchmarks", "tests", "examples", "deployments")


@contextlib.contextmanager
def code_of(commit: str, folder: Path) -> Iterator[Path]:
    """A folder in which `python -m` runs that commit's packages, with the data that they name."""
    there, place = folder / f"worktree-{commit}", folder / f"code-{commit}"
    git = ["git", "worktree"]
    add = [*git, "add", "--detach", str(there), commit]
    subprocess.run(add, cwd=ROOT, check=True, capture_output=True)
    try:
        place.mkdir()
        for name, target in {**{name: name for name in SAME}, **NAMED}.items():
            (place / name).symlink_to(there / target)
        yield place
    finally:
        subprocess.run([*git, "remove", "--force", str(there)], cwd=ROOT, check=True)
