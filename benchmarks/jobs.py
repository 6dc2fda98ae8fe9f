"""Measured runs, each in a process of its own, which a job in JSON describes, and their server."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from mortal.server.api import client_of
from mortal.server.files import Server

T = TypeVar("T")

HISTORY_TIMEOUT_S = 120.0
ROOT = Path(__file__).parents[1]
"""Where configurations name their data from."""


@contextlib.contextmanager
def own_server(folder: Path) -> Iterator[Server]:
    """Yield a server as `mortal` would start it, with its files in `folder`, for all children.

    Sets the environment of the runs: quiet, offline, one thread unless OMP_NUM_THREADS says more.
    """
    from mortal.driver import QUIET_PREFECT  # which a measured process does not need
    from mortal.server.select_server import prefect_server

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    for name, value in {**QUIET_PREFECT, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}.items():
        os.environ.setdefault(name, value)
    os.environ.pop("PREFECT_API_URL", None)
    os.environ["MORTAL_STATE_DIR"] = str(folder / "state")
    with prefect_server(print) as server:
        yield server


def in_turn(variants: Sequence[T], number: int) -> Sequence[T]:
    """Return the order of a round: every second one in reverse, so that a slow minute of the
    machine does not fall on one of the variants."""
    return variants if number % 2 == 0 else variants[::-1]


def run_job(
    module: str,
    job: Mapping[str, Any],
    server: Server | None,
    *,
    threads: int | None = None,
    variables: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return what `python -m MODULE JOB` has measured, and as `whole_s` how long the process took.

    Returns when the server, if the run has one, has written down its history, or some time later.
    `threads`: OMP_NUM_THREADS, if given.
    `variables`: of the environment, besides.
    """
    env = {**os.environ, **(variables or {})}
    if threads is not None:
        env["OMP_NUM_THREADS"] = str(threads)
    command = [sys.executable, "-m", module, json.dumps(job)]
    began = time.perf_counter()
    subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL)
    whole_s = time.perf_counter() - began
    outcome = json.loads(Path(job["output"]).read_text())
    if server is not None and outcome["flow_run_id"] is not None:
        _wait_for_history(server, UUID(outcome["flow_run_id"]))
    return {**outcome, "whole_s": whole_s}


def _wait_for_history(server: Server, flow_run_id: UUID) -> None:
    """Wait for the server to write down the end of each task run."""
    own = {"any_": [str(flow_run_id)]}
    wanted = {
        "flow_runs": {"operator": "or_", "id": own, "parent_flow_run_id": own},
        "task_runs": {"state": {"type": {"any_": ["PENDING", "RUNNING", "SCHEDULED"]}}},
    }
    deadline = time.monotonic() + HISTORY_TIMEOUT_S
    with client_of(server.api_url) as client:
        while client.request("POST", "/task_runs/count", json=wanted).json():
            if time.monotonic() > deadline:
                return
            time.sleep(0.5)


def answer_job(measure: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
    """Measure, inside of such a process, as the job says, and write down what came of it."""
    job: dict[str, Any] = json.loads(sys.argv[1])
    Path(job["output"]).write_text(json.dumps(measure(job)))
