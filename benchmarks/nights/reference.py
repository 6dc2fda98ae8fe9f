"""The same night in a quiet place: without Prefect, in one process, nothing happens to it.

python -m benchmarks.nights.reference JOB      # {"folder", "config", "run_id", "output"}
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.jobs import answer_job
from tests.support.chaos.comparison import digests
from tests.support.undisturbed import undisturbed


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Train as the job's configuration says; the digests of what that leaves."""
    folder = Path(job["folder"])
    (folder / "tiny.toml").write_text(job["config"])
    run = undisturbed(folder, (), job["run_id"])
    return {
        "digests": dict(digests(run.store.root, run.info.num_steps)),
        "evaluations": run.logs.read("evaluations.jsonl"),
        "rewards": [row["reward"] for row in run.metrics()],
        "final": str(run.store.root / "final"),
    }


if __name__ == "__main__":
    answer_job(measure)
