"""The night whose pages are shown: a server, a worker, a run of the demo's deployment."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.jobs import ROOT
from benchmarks.nights.receiver import Receiver

RUN_ID = "letters"
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
LOOK_EVERY_S = 2.0
RECEIVED_WITHIN_S = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Night:
    """What there is to look at."""

    ui_url: str
    flow_run_id: str
    segment_id: str
    """The flow run of a segment of steps in the middle."""
    deployment_id: str
    report_id: str
    """The artifact with the run's report."""
    run_dir: Path
    receiver_url: str
    """Shows the notices that were received."""


class Prefect:
    """The `prefect` and `mortal` commands and the API of one server."""

    def __init__(self, api_url: str) -> None:
        self.http = httpx.Client(base_url=api_url, timeout=60, trust_env=False)
        self._env = {**os.environ, "PREFECT_API_URL": api_url, "PWD": str(ROOT)}

    def run(self, module: str, *arguments: str) -> None:
        """Run a command to its end. Raises `subprocess.CalledProcessError`."""
        command = [sys.executable, "-m", module, *arguments]
        subprocess.run(command, cwd=ROOT, env=self._env, check=True, stdout=subprocess.DEVNULL)

    @contextlib.contextmanager
    def worker(self) -> Iterator[None]:
        """Yield a process worker for the time of the block."""
        command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "local"]
        worker = subprocess.Popen(
            command, cwd=ROOT, env=self._env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            yield
        finally:
            worker.terminate()
            worker.wait()

    def post(self, path: str, wanted: dict[str, Any]) -> Any:
        """Return the answer to a POST. Raises `httpx.HTTPStatusError`."""
        return self.http.post(path, json=wanted).raise_for_status().json()

    def get(self, path: str) -> Any:
        """Return the answer to a GET. Raises `httpx.HTTPStatusError`."""
        return self.http.get(path).raise_for_status().json()


def train(prefect: Prefect, ui_url: str, folder: Path, steps: int, receiver: Receiver) -> Night:
    """Deploy what the project ships and let `grpo-train/local` train the demo, to the end."""
    for pool in ("local", "modal"):
        prefect.run("prefect", "work-pool", "create", pool, "--type", "process")
    deploy = ("deploy", "--all", "--prefect-file", "deployments/prefect.yaml")
    prefect.run("prefect", "--no-prompt", *deploy)
    block = receiver.make_block(str(prefect.http.base_url).rstrip("/"), "ops")
    prefect.run("mortal", "automate", "--notify", block)
    deployment = prefect.get("/deployments/name/grpo-train/local")["id"]
    overrides = [f"run_id={RUN_ID}", f"runs_dir={folder / 'runs'}", f"training.max_steps={steps}"]
    wanted = {"state": {"type": "SCHEDULED"}, "parameters": {"overrides": overrides}}
    flow_run = prefect.post(f"/deployments/{deployment}/create_flow_run", wanted)["id"]
    with prefect.worker():
        _wait_for_its_end(prefect, flow_run)
    return Night(
        ui_url=ui_url,
        flow_run_id=flow_run,
        segment_id=_middle_segment(prefect),
        deployment_id=deployment,
        report_id=_report(prefect),
        run_dir=folder / "runs" / RUN_ID,
        receiver_url=_received(receiver),
    )


def _wait_for_its_end(prefect: Prefect, flow_run_id: str) -> None:
    while (state := prefect.get(f"/flow_runs/{flow_run_id}")["state"])["type"] not in ENDED:
        time.sleep(LOOK_EVERY_S)
    if state["type"] != "COMPLETED":
        raise RuntimeError(f"the run ended {state['name']}: {state['message']}")


def _received(receiver: Receiver) -> str:
    """Return the receiver's page, once there is something on it."""
    deadline = time.monotonic() + RECEIVED_WITHIN_S
    while not receiver.received:
        if time.monotonic() > deadline:
            raise RuntimeError(f"no notice was received within {RECEIVED_WITHIN_S:g} s")
        time.sleep(LOOK_EVERY_S)
    return receiver.url


def _middle_segment(prefect: Prefect) -> str:
    wanted = {"flow_runs": {"tags": {"all_": [f"run:{RUN_ID}"]}}, "sort": "START_TIME_ASC"}
    runs = prefect.post("/flow_runs/filter", wanted)
    segments = [run["id"] for run in runs if run["name"].startswith(("step ", "steps "))]
    return str(segments[len(segments) // 2])


def _report(prefect: Prefect) -> str:
    wanted = {"artifacts": {"key": {"any_": [f"report-{RUN_ID}"]}}}
    return str(prefect.post("/artifacts/filter", wanted)[0]["id"])
