"""A run's identity without problems or a model, for what needs no more of it."""

from pathlib import Path

from mortal_steps.types import FileRef
from mortal_steps.types.identity import RunInfo

NO_FILE = FileRef(path="none", sha256="0" * 64)


def run_info(folder: Path) -> RunInfo:
    """Return the identity of a run of nine steps."""
    return RunInfo(
        run_id="r",
        uid="0" * 32,
        fingerprint="f",
        dataset_fingerprint="d",
        working_dir=str(folder),
        num_steps=9,
        num_problems=1,
        num_eval_problems=1,
        config_sha256="0" * 64,
        train_problems=NO_FILE,
        eval_problems=NO_FILE,
        created_at=0.0,
    )
