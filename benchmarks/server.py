"""A Prefect server for measured runs, and runs that wait until it knows all about them."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from benchmarks.jobs import ask
from mortal.driver import QUIET_PREFECT
from mortal.server.api import client_of
from mortal.server.files import Server
from mortal.server.select_server import prefect_server

HISTORY_TIMEOUT_S = 120.0


@contextlib.contextmanager
def own_server(folder: Path) -> Iterator[Server]:
    """Yield a server as `mortal` would start it, with its files in `folder`, for all children.

    Sets the environment of the runs: quiet, offline, one thread unless OMP_NUM_THREADS says more.
    """
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    for name, value in {**QUIET_PREFECT, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}.items():
        os.environ.setdefault(name, value)
    os.environ.pop("PREFECT_API_URL", None)
    os.environ["MORTAL_STATE_DIR"] = str(folder / "state")
    with prefect_server(print) as server:
        yield server


def measured_run(
    server: Server | None,
    job: Mapping[str, Any],
    *,
    function: str = "measured_run:measure",
    variables: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return what a process has measured of a run, and as `whole_s` how long the process took.

    Returns when the server, if the run has one, has written down its history, or some time later.
    `variables`: of the environment, besides.
    """
    began = time.perf_counter()
    outcome: dict[str, Any] = ask(function, job, variables=variables)
    whole_s = time.perf_counter() - began
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
