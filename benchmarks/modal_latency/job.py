"""One measured run, in a process of its own: `python -m benchmarks.modal_latency.job JOB`.

Notes, after each step, the time and what the plane has been asked for by then.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.jobs import answer_job
from mortal_steps.config.loader import load_config
from mortal_steps.orchestration.driver import open_session
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.report.recorder import Recorder
from tests.support.bare import train


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Return the stamps, and the digest of the final weights."""
    run = open_run(load_config(Path(job["config"]), job["overrides"]))
    stamps: list[dict[str, Any]] = []

    class Stamping(Recorder):
        def step(self, *args: Any) -> Any:
            stamps.append(stamp())
            return super().step(*args)

    async def drive() -> None:
        async with open_session(run) as session:
            await train(session, Stamping(run))

    asyncio.run(drive())
    final = run.manifest.final
    return {"stamps": stamps, "weights": final and final.weights_sha256}


def stamp() -> dict[str, Any]:
    """The time, and how often the plane was asked for what by clients and by containers."""
    now = time.perf_counter()
    with urllib.request.urlopen(f"{os.environ['MODAL_PLANE_ADMIN_URL']}/state") as answer:
        state = json.load(answer)
    volume = {name: state["rpcs"].get(name, 0) for name in ("VolumeReload", "VolumeCommit")}
    return {"time": now, "client": state["client_rpcs"], "volume": volume}


if __name__ == "__main__":
    answer_job(measure)
