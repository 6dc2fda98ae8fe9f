"""Models for the tests of what is in production: folders with a few bytes of weights."""

import hashlib

from mortal_steps.registry.registry import Decision
from mortal_steps.store.digests import digest_of_file
from mortal_steps.store.files import digest_file


def model_files(folder, run_id="run-1", content="weights", runs=None):
    """A folder with a model's files, as a run may have it, and what brings it in."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_text(content)
    return {
        "run_id": run_id,
        "run_uid": hashlib.sha256(run_id.encode()).hexdigest()[:32],
        "runs": runs or (run_id,),
        "weights_sha256": digest_file(folder / "model.safetensors"),
        "files": {path.name: (path, digest_of_file(path)) for path in folder.iterdir()},
    }


def decide(registry, action, version, *, before=None, by="a test", why="because", **more):
    """Decide about a version that is compared with `before`."""
    decision = Decision(action=action, version=version, before=before, by=by, why=why, **more)
    return registry.decide(decision)
