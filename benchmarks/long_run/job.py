"""A run with idle workers, in a process of its own: `python -m benchmarks.long_run.job JOB`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from prefect import flow

from benchmarks.jobs import answer_job
from benchmarks.long_run.idle import IdleCompute
from benchmarks.overhead.meter import StepMeter
from mortal_flows import grpo_train
from mortal_steps.config import RunConfig
from mortal_steps.config.loader import load_config
from mortal_steps.orchestration.driver import open_session
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.report.recorder import Recorder
from mortal_steps.runs.run import Run


def measure(job: Mapping[str, Any]) -> dict[str, Any]:
    """`flow_run_id` and a stamp at the start of each step, which takes `step_s` seconds."""
    config = load_config(Path(job["config"]), job["overrides"])
    meter = StepMeter()
    idle: Any = partial(IdleCompute, step_s=job.get("step_s", 0.0))
    idle_session = partial(open_session, local=idle)

    @flow(name="grpo-train", persist_result=False)
    async def train(config: RunConfig) -> Any:
        return await grpo_train.drive(open_run(config), partial(MeteredRecorder, meter=meter))

    with mock.patch.object(grpo_train, "open_session", idle_session):
        running: Any = train(config, return_state=True)
        state = asyncio.run(running)
    if not state.is_completed():
        raise SystemExit(f"the run ended as {state!r}")
    return {"stamps": meter.stamps, "flow_run_id": str(state.state_details.flow_run_id)}


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
