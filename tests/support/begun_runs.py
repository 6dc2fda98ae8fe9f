"""Run directories that a test begins and nobody trains."""

from pathlib import Path

from mortal_steps.plan.run_config import RunConfig
from mortal_steps.runs.identity import write_identity
from mortal_steps.runs.manifest import RunManifest
from mortal_steps.store import RunStore
from mortal_steps.types import Problem


def make_run(folder: Path, run_id: str, **standing) -> RunStore:
    """Return a stopped run; `standing` is what its manifest says besides."""
    store = RunStore(folder / run_id)
    config = RunConfig(run_id=run_id, data={"source": "x"}, rewards={"functions": ["m:f"]})
    write_identity(store, config, [Problem(id="p", prompt="a")], [])
    store.write_record("manifest.json", RunManifest(status="stopped", **standing), RunManifest)
    return store
