"""One long run, in a process of its own: `python -m benchmarks.long_run.job JOB`."""

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
from benchmarks.overhead.variants import MeteredRecorder
from mortal_flows import grpo_train
from mortal_steps.config import RunConfig
from mortal_steps.config.loader import load_config
from mortal_steps.orchestration.driver import open_session
from mortal_steps.orchestration.opening import open_run


def measure(job: Mapping[str, Any]) -> dict[str, Any]:
    """`flow_run_id` and a stamp at the start of each step."""
    config = load_config(Path(job["config"]), job["overrides"])
    meter = StepMeter()
    idle_session = partial(open_session, local=IdleCompute)

    @flow(name="grpo-train", persist_result=False)
    async def idle(config: RunConfig) -> Any:
        return await grpo_train.drive(open_run(config), partial(MeteredRecorder, meter=meter))

    with mock.patch.object(grpo_train, "open_session", idle_session):
        running: Any = idle(config, return_state=True)
        state = asyncio.run(running)
    if not state.is_completed():
        raise SystemExit(f"the run ended as {state!r}")
    return {"stamps": meter.stamps, "flow_run_id": str(state.state_details.flow_run_id)}


if __name__ == "__main__":
    answer_job(measure)
