"""The examples, run as a user runs them, with a tiny model and rows from here."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from mortal_steps.config import NewModelConfig
from mortal_steps.errors import RunNotFoundError
from mortal_steps.policy.starting_model.new_model import build_model
from mortal_steps.runs.lease import read_lease
from mortal_steps.runs.run import Run, find_run
from mortal_steps.store import RunStore
from tests.support.paths import ROOT

EXAMPLES = ROOT / "examples"
SHORT = ("--dataset", str(EXAMPLES / "gsm8k/sample.jsonl"), "--model", "./tiny")
SMALL = ("--batch_size", "2", "--num_generations", "2", "--max_completion_length", "8")
PATIENCE_S = 240


def tiny_model(folder: Path) -> None:
    """Build the model that stands in for the Hub's."""
    build_model(folder / "tiny", NewModelConfig(max_position_embeddings=1024), seed=0)


def start(folder: Path, script: str, *options: str, env: dict[str, str]) -> subprocess.Popen[str]:
    """Return an example in the background."""
    return subprocess.Popen(
        [sys.executable, str(EXAMPLES / script), *options],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(folder: Path, script: str, *options: str, run_id: str, env: dict[str, str]) -> Run:
    """Return the run that an example has trained to its end."""
    process = start(folder, script, *options, "--run_id", run_id, env=env)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output
    run = find_run(folder / "runs", run_id)
    assert run.is_complete() and run_id in output
    return run


def killed(
    folder: Path, script: str, *options: str, run_id: str, step: int, env: dict[str, str]
) -> None:
    """Kill an example and the process that drives its run once that has done `step` steps."""
    process = start(folder, script, *options, "--run_id", run_id, env=env)
    deadline = time.monotonic() + PATIENCE_S
    while not _has_done(folder / "runs", run_id, step):
        assert process.poll() is None and time.monotonic() < deadline, process.stdout
        time.sleep(0.02)
    driver = read_lease(RunStore(folder / "runs" / run_id))
    assert driver is not None
    os.kill(driver.pid, signal.SIGKILL)
    process.kill()
    process.communicate(timeout=60)
    assert not find_run(folder / "runs", run_id).is_complete()


def _has_done(runs_dir: Path, run_id: str, step: int) -> bool:
    try:
        return find_run(runs_dir, run_id).manifest.step >= step
    except RunNotFoundError:
        return False
