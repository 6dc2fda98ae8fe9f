"""A run with a stamp for each step, in a process of its own.

`config` and `overrides` of the job name the run. `prefect` says whether it is a flow on the server;
without it, the same loop runs bare. With `step_s`, idle workers wait that long in each step.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from prefect import flow

from benchmarks.idle import IdleCompute
from benchmarks.meter import StepMeter
from mortal_flows import grpo_train
from mortal_steps.orchestration.driver import open_session
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.plan.loader import load_config
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.report.recorder import Recorder
from mortal_steps.runs.run import Run
from tests.support.bare import train as train_bare


class MeteredRecorder(Recorder):
    """Also stamps the start of each step."""

    def __init__(self, run: Run, *, meter: StepMeter) -> None:
        super().__init__(run)
        self._meter = meter

    def begin_step(self) -> None:
        """See `Recorder`."""
        self._meter.mark()
        super().begin_step()


def measure(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stamps, and the id of the flow run if there is one."""
    config = load_config(Path(job["config"]), job["overrides"])
    meter = StepMeter()
    session: Any = open_session
    if "step_s" in job:
        idle: Any = partial(IdleCompute, step_s=job["step_s"])
        session = partial(open_session, local=idle)
    if not job["prefect"]:
        asyncio.run(_bare(config, session, meter))
        return {"stamps": meter.stamps, "flow_run_id": None}
    with mock.patch.object(grpo_train, "open_session", session):
        flow_run_id = _as_flow(config, meter)
    return {"stamps": meter.stamps, "flow_run_id": flow_run_id}


async def _bare(config: RunConfig, session: Any, meter: StepMeter) -> None:
    run = open_run(config)
    async with session(run) as opened:
        await train_bare(opened, MeteredRecorder(run, meter=meter))


def _as_flow(config: RunConfig, meter: StepMeter) -> str:
    @flow(name="grpo-train", persist_result=False)
    async def train(config: RunConfig) -> Any:
        return await grpo_train.drive(open_run(config), partial(MeteredRecorder, meter=meter))

    running: Any = train(config, return_state=True)
    state = asyncio.run(running)
    if not state.is_completed():
        raise SystemExit(f"the run ended as {state!r}")
    return str(state.state_details.flow_run_id)
