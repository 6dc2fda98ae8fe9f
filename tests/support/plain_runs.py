"""Runs without Prefect, each in a process of its own that can be killed, which trains in itself.

It is forked off one that has imported torch and TRL, and nothing checks its configuration anew, so
that it costs little of what a script with workers of its own does.
"""

import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

from mortal_steps.config import RunConfig
from mortal_steps.config.loader import load_config
from mortal_steps.orchestration.checking import preflight
from tests.support.bare_flow import bare_in, go_on
from tests.support.training_forks import training_forks


def begin_run(folder: Path, run_id: str) -> BaseProcess:
    """Begin or continue the run of `<run_id>.toml` in the folder."""
    process = training_forks().Process(target=_begin, args=(folder, run_id))
    process.start()
    return process


def _begin(folder: Path, run_id: str) -> None:
    sys.path.insert(0, str(folder))  # as for a script that lies there
    train(folder, run_id)


def train(folder: Path, run_id: str) -> None:
    """Begin or continue it in this process."""
    with bare_in(folder) as patch:
        patch.setattr(preflight, "check", rows_alone)
        go_on(load_config(folder / f"{run_id}.toml", [f"run_id={run_id}"]))


def rows_alone(config: RunConfig, problems: object = None, **others: object) -> object:
    """In place of `preflight.check`."""
    Path(config.runs_dir).mkdir(exist_ok=True)
    return problems or preflight._read(config, print, print)
