"""Runs that trackers follow, and what is read back from the trackers' own files."""

from __future__ import annotations

import importlib
import os
import signal
import sqlite3
import sys
from pathlib import Path
from types import ModuleType

import psutil

from mortal_steps.orchestration.tracking import FOLLOW
from mortal_steps.plan.loader import parse_config
from mortal_steps.report.trackers import FOLDER
from mortal_steps.runs.identity import write_identity
from mortal_steps.runs.run import Run, find_run
from mortal_steps.store import RunStore
from mortal_steps.types import Problem

TRACKERS = ("wandb", "tensorboard", "trackio")


def begin(folder: Path, num_steps: int, **logging: object) -> Run:
    """Return a run of so many steps that stands at its beginning; nothing can train it."""
    config = parse_config(
        {
            "run_id": "tracked",
            "runs_dir": str(folder),
            "training": {"batch_size": 1, "max_steps": num_steps},
            "rewards": {"functions": ["m:a"], "dry_run": False},
            "logging": logging,
        }
    )
    store = RunStore(folder / "tracked")
    write_identity(store, config, [Problem(id="p", prompt="2+2=")], [])
    run = find_run(folder, "tracked")
    run.update(status="running")
    return run


def commit(run: Run, *steps: int) -> None:
    """Commit steps as the recorder does: lines, then the manifest; and begin another one, which is
    not committed."""
    for step in steps:
        if step == 1:
            run.append("evaluations.jsonl", {"step": 0, "reward": 0.0})
        run.append("metrics.jsonl", {"step": step, "reward": step / 10, "state_id": "x"})
        row = {"step": step - 1, "stage": "generate", "busy_s": 0.5, "wait_s": 0.25}
        run.append("timings.jsonl", row)
        run.update(step=step)
    run.logs.append("metrics.jsonl", {"step": steps[-1] + 1, "reward": -1.0})


def kill(run: Run, name: str) -> None:
    """SIGKILL to the process that follows the run for this tracker."""
    (pid,) = followers(run, name)
    os.kill(pid, signal.SIGKILL)


def followers(run: Run, name: str) -> list[int]:
    """Return the processes that follow the run for this tracker."""
    wanted = [str(run.store.root.absolute()), name]
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if command[3:6] == [FOLLOW, *wanted]:  # and not its supervisor
            found.append(process.pid)
    return found


def read_back(run: Run) -> dict[str, list[int]]:
    """Return the steps in the files of each tracker, in order, as often as they are there."""
    return {
        "wandb": sorted(wandb_steps(run)),
        "tensorboard": sorted(tensorboard_steps(run)),
        "trackio": sorted(step for _, step in trackio_rows(run)),
    }


def tensorboard_steps(run: Run) -> list[int]:
    """Over all event files of the run."""
    from mortal_steps.report.trackers.tensorboard import recorded_steps  # which takes half a second

    return list(recorded_steps(run.store.path(f"{FOLDER}/tensorboard")))


def wandb_steps(run: Run) -> list[int]:
    """Over all folders of the run; they are of one W&B run."""
    read_history = with_wandb("tests.support.wandb_files").read_history
    files = list(run.store.path(f"{FOLDER}/wandb").glob("offline-run-*/*.wandb"))
    assert {file.stem for file in files} == {f"run-tracked-{run.info.uid[:8]}"} or not files
    return [step for file in files for step in read_history(file).steps]


def with_wandb(module: str) -> ModuleType:
    """A module that imports wandb, which takes a second; an actor that has worked in this process
    has shut wandb out."""
    if sys.modules.get("wandb", sys) is None:
        del sys.modules["wandb"]
    return importlib.import_module(module)


def trackio_rows(run: Run) -> list[tuple[str, int]]:
    """Run and step of each row of trackio's database."""
    rows: list[tuple[str, int]] = []
    for path in run.store.path(f"{FOLDER}/trackio").glob("*.db"):
        with sqlite3.connect(path) as database:
            if database.execute("select 1 from sqlite_master where name = 'metrics'").fetchone():
                rows += database.execute("select run_id, step from metrics")
    return rows
