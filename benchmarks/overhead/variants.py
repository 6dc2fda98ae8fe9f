"""One measured run, in a process of its own: `python -m benchmarks.overhead.variants JOB`.

- flow: what grpo_train does, with real workers
- bare: the very same loop and workers, every stage a plain function
- floor: as many empty task runs, each as long as its stage took in the bare run
- persisted: the same, results kept where grpo_train keeps them
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import flow

from benchmarks.jobs import answer_job
from benchmarks.overhead.floor import make_floor
from benchmarks.overhead.meter import StepMeter
from mortal_flows.grpo_train import drive
from mortal_steps.config import RunConfig
from mortal_steps.config.loader import load_config
from mortal_steps.orchestration.driver import open_session
from mortal_steps.orchestration.opening import open_run
from mortal_steps.report.recorder import Recorder
from mortal_steps.runs.run import Run
from tests.support import bare


def measure(job: Mapping[str, Any]) -> dict[str, Any]:
    """`flow_run_id`, a stamp at the start of each step and, of a bare run, how long the stages
    took."""
    config = load_config(Path(job["config"]), job["overrides"])
    meter = StepMeter()
    if job["variant"] == "bare":
        lengths_s = asyncio.run(_bare(config, meter))
        return {"stamps": meter.stamps, "flow_run_id": None, "lengths_s": lengths_s}
    flow_run_id = _run(job["variant"], config, meter, job["lengths_s"])
    return {"stamps": meter.stamps, "flow_run_id": str(flow_run_id)}


def _run(variant: str, config: RunConfig, meter: StepMeter, lengths_s: Mapping[str, float]) -> UUID:
    if variant == "flow":
        state = asyncio.run(_flow(meter)(config, return_state=True))
    else:
        steps = config.training.max_steps
        floor = make_floor(config, steps, meter, lengths_s, persisted=variant == "persisted")
        state = asyncio.run(floor(return_state=True))
    if not state.is_completed():
        raise SystemExit(f"the {variant} run ended as {state!r}")
    return state.state_details.flow_run_id


def _flow(meter: StepMeter) -> Any:
    @flow(name="grpo-train", persist_result=False)
    async def metered(config: RunConfig) -> Any:
        return await drive(open_run(config), partial(MeteredRecorder, meter=meter))

    return metered


async def _bare(config: RunConfig, meter: StepMeter) -> dict[str, float]:
    """Median seconds of each stage, as the loop waits for it."""
    async with open_session(open_run(config)) as session:
        await bare.train(session, MeteredRecorder(session.run, meter=meter))
        rows = session.run.timings()
    stages: dict[str, list[float]] = {}
    for row in rows:
        stages.setdefault(row["stage"], []).append(row["busy_s"] + row["wait_s"])
    return {stage: statistics.median(lengths) for stage, lengths in stages.items()}


class MeteredRecorder(Recorder):
    """Also stamps the start of each step."""

    def __init__(self, run: Run, *, meter: StepMeter) -> None:
        super().__init__(run)
        self._meter = meter

    def begin_step(self) -> None:
        """See `Recorder`."""
        self._meter.mark()
        super().begin_step()


if __name__ == "__main__":
    answer_job(measure)
