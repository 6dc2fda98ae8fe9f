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
    name = commit.replace("/", "-")
    there, place = folder / f"worktree-{name}", folder / f"code-{name}"
    git = ["git", "worktree"]
    add = [*git, "add", "--detach", str(there), commit]
    subprocess.run(add, cwd=ROOT, check=True, capture_output=True)
    try:
        place.mkdir()
        for package, lies in {**{same: same for same in SAME}, **NAMED}.items():
            (place / package).symlink_to(there / lies)
        yield place
    finally:
        subprocess.run([*git, "remove", "--force", str(there)], cwd=ROOT, check=True)
