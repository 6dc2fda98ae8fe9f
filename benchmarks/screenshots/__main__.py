"""Take the pictures of docs/pictures/prefect: a run of the demo's deployment in Prefect's pages.

    python -m benchmarks.screenshots [--steps 120] [--chromium /usr/bin/chromium] [--output FOLDER]

Everything is real: a Prefect server, a worker, the shipped deployments, a headless Chromium.
"""

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.jobs import ROOT
from benchmarks.nights.receiver import Receiver
from benchmarks.output import folder_for
from benchmarks.screenshots.pages import Night, take
from benchmarks.server import own_server
from tests.support.deployments import Prefect

OUTPUT = ROOT / "docs" / "pictures" / "prefect"
RUN_ID = "letters"
ENDED = ("Completed", "Failed", "Crashed", "Cancelled")
TRAINED_WITHIN_S = 3600.0
LOOK_EVERY_S = 2.0
RECEIVED_WITHIN_S = 60.0


def main() -> None:
    """Train, then look at it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.screenshots", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--steps", type=int, default=120, help="train steps of the run")
    parser.add_argument("--chromium", default=shutil.which("chromium"), help="the browser")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder for the PNG files")
    options = parser.parse_args()
    if not options.chromium:
        parser.error("no chromium on this machine: apt-get install chromium, or --chromium PATH")
    with folder_for("screenshots") as folder, own_server(folder) as server:
        receiver = Receiver()
        prefect = Prefect(server.api_url)
        night = train(prefect, server.ui_url, folder, options.steps, receiver)
        for path in take(night, options.chromium, options.output):
            print(path)


def train(prefect: Prefect, ui_url: str, folder: Path, steps: int, receiver: Receiver) -> Night:
    """Deploy what the project ships and let `grpo-train/local` train the demo, to the end."""
    for pool in ("local", "modal"):
        prefect("work-pool", "create", pool, "--type", "process")
    prefect("--no-prompt", "deploy", "--all", "--prefect-file", "deployments/prefect.yaml")
    block = receiver.make_block(prefect.env["PREFECT_API_URL"], "ops")
    automate = [sys.executable, "-m", "mortal", "automate", "--notify", block]
    subprocess.run(automate, cwd=ROOT, env=prefect.env, check=True, stdout=subprocess.DEVNULL)
    deployment = prefect.http.get("/deployments/name/grpo-train/local").json()["id"]
    overrides = [f"run_id={RUN_ID}", f"runs_dir={folder / 'runs'}", f"training.max_steps={steps}"]
    wanted = {"state": {"type": "SCHEDULED"}, "parameters": {"overrides": overrides}}
    flow_run = _posted(prefect, f"/deployments/{deployment}/create_flow_run", wanted)["id"]
    with prefect.worker():
        ended = prefect.wait_for(flow_run, *ENDED, within_s=TRAINED_WITHIN_S)[-1]
    if ended != "Completed":
        raise RuntimeError(f"the run ended {ended}")
    return Night(
        ui_url=ui_url,
        flow_run_id=flow_run,
        segment_id=_middle_segment(prefect),
        deployment_id=deployment,
        report_id=_report(prefect),
        run_dir=folder / "runs" / RUN_ID,
        receiver_url=_received(receiver),
    )


def _posted(prefect: Prefect, path: str, wanted: Mapping[str, Any]) -> Any:
    return prefect.http.post(path, json=wanted).raise_for_status().json()


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
    runs = _posted(prefect, "/flow_runs/filter", wanted)
    segments = [run["id"] for run in runs if run["name"].startswith(("step ", "steps "))]
    return str(segments[len(segments) // 2])


def _report(prefect: Prefect) -> str:
    wanted = {"artifacts": {"key": {"any_": [f"report-{RUN_ID}"]}}}
    return str(_posted(prefect, "/artifacts/filter", wanted)[0]["id"])


if __name__ == "__main__":
    main()
