"""One measured run, in a process of its own: python benchmarks/modal_latency/job.py JOB

It is run by its path, and takes everything else from PYTHONPATH: the code that is measured. Writes
down, after each step, the time and what the plane has been asked for by then.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from mortal_flows.stop import Stop
from mortal_flows.training import Training
from mortal_steps.config.loader import load_config
from mortal_steps.orchestration.batch_source import batch_source
from mortal_steps.orchestration.driver import open_session
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.orchestration.reporter import Reporter
from mortal_steps.report.recorder import Recorder


def main() -> None:
    job: dict[str, Any] = json.loads(sys.argv[1])
    run = open_run(load_config(Path(job["config"]), job["overrides"]))
    stamps: list[dict[str, Any]] = []

    class Stamping(Recorder):
        def step(self, *args: Any) -> Any:
            stamps.append(stamp())
            return super().step(*args)

    async def drive() -> None:
        async with open_session(run) as session:
            recorder, source = Stamping(run), batch_source(run.config.rollout.source)
            loop = Training(session, source, Reporter(), Stop(), recorder)
            await loop.run()

    asyncio.run(drive())
    final = run.manifest.final
    outcome = {"stamps": stamps, "weights": final and final.weights_sha256}
    Path(job["output"]).write_text(json.dumps(outcome))


def stamp() -> dict[str, Any]:
    """The time, and how often the plane was asked for what by clients and by containers."""
    now = time.perf_counter()
    with urllib.request.urlopen(f"{os.environ['MODAL_PLANE_ADMIN_URL']}/state") as answer:
        state = json.load(answer)
    volume = {name: state["rpcs"].get(name, 0) for name in ("VolumeReload", "VolumeCommit")}
    return {"time": now, "client": state["client_rpcs"], "volume": volume}


if __name__ == "__main__":
    main()
