"""Make the run directory that later versions are tested on: `make fixture`.

It is a small run that was killed in its fourth step of six, with a record of how it would have
ended.
"""

import json
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

from mortal_steps import __version__
from mortal_steps.plan.loader import load_config
from mortal_steps.policy import journal
from mortal_steps.policy.on_disk.weights import weights_digest
from mortal_steps.runs.logs import EVALUATIONS
from mortal_steps.types import Problem
from tests.support.bare_flow import bare_in, go_on
from tests.support.paths import ROOT

PROJECT = Path(__file__).with_name("begun_project")
ARCHIVE = ROOT / f"tests/integration/runs/begun_in_{__version__.replace('.', '_')}.tar.gz"
NUM_STEPS = 6


def main() -> None:
    """Write the archive of this version."""
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "project"
        shutil.copytree(PROJECT, project)
        with bare_in(project):
            ended = end_of(go_on(load_config(Path("tiny.toml"))))
            shutil.rmtree("runs/run")
            killed()
            (project / "ended.json").write_text(json.dumps(ended, indent=1))
        with tarfile.open(ARCHIVE, "w:gz") as archive:
            archive.add(project, "project", filter=without_caches)
    sys.stdout.write(f"{ARCHIVE}\n")


def end_of(run):
    """Return what the killed run is compared with once it has been continued."""
    batches = [f"steps/{step:06d}/batch.json" for step in range(NUM_STEPS)]
    return {
        "state_ids": [journal.find_result(run.store, step).state_id for step in range(NUM_STEPS)],
        "problems": [run.store.find_record(name, list[Problem])[0].sha256 for name in batches],
        "metrics": run.metrics(),
        "evaluations": run.logs.read(EVALUATIONS),
        "weights_sha256": weights_digest(run.store.path("final")),
    }


def killed():
    """Train until the fourth step is taken but not noted."""
    import pytest

    from tests.support.bare_flow import Killed

    with pytest.raises(Killed):
        go_on(load_config(Path("tiny.toml")), killed_after=3)


def without_caches(entry):
    """Leave out locks and bytecode, and who made the archive."""
    if entry.name.endswith((".lock", "__pycache__")):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    main()
