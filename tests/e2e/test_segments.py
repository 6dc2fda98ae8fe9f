"""The segments of a run on a real server."""

import asyncio
import time
from pathlib import Path

import pytest
from prefect import Flow, flow, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.context import FlowRunContext
from prefect.events.worker import EventsWorker
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Pending

from mortal_steps.errors import CorruptFileError, LeaseLostError
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.report.timings import timing_row
from mortal_steps.runs.logs import METRICS, TIMINGS
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.types import StageTiming
from mortal_tasks.segments import FLOW, in_segments
from mortal_tasks.server_watch import watch_server
from tests.support.run_info import run_info


@task
def asked_for():
    """Under which a segment was made whose server died before it began."""


@task(name=FLOW)
def stands_for_a_segment():
    """As Prefect makes it before it makes the segment's flow run."""


@flow(persist_result=False)
async def trains(folder: Path, ended: Exception | None) -> dict[str, str]:
    """A run whose last two segments never begin; the state of each segment, by its name."""
    run = Run(RunStore(folder), RunConfig(), run_info(folder))
    run.update(status="running")
    parent = FlowRunContext.get().flow_run.id
    async with get_client() as client, watch_server(60) as server:
        try:
            async with in_segments(run, server) as segments:
                async with segments.at(0):
                    pass
                segments.end(before=run.info.num_steps + 10)
                async with asyncio.timeout(30):
                    while segments._ending:
                        await asyncio.sleep(0.1)
                        segments.end(before=0)  # which forgets those whose end is known
                under = await client.create_task_run(asked_for, parent, dynamic_key="0")
                await client.create_flow_run(
                    Flow(fn=lambda: None, name=FLOW),
                    name="never begun",
                    parent_task_run_id=under.id,
                    state=Pending(),
                )
                alone = await client.create_task_run(
                    stands_for_a_segment, parent, "1", name=f"{FLOW}-1", state=Pending()
                )
                if ended is not None:
                    raise ended
        except (CorruptFileError, LeaseLostError):
            pass
        of_run = FlowRunFilter.model_validate({"parent_flow_run_id": {"any_": [parent]}})
        found = await client.read_flow_runs(flow_run_filter=of_run)
        states = {each.name: each.state_name for each in found}
        states["a task run alone"] = (await client.read_task_run(alone.id)).state_name
    return states


@pytest.mark.parametrize(
    ("ended", "state"),
    [
        (None, "Completed"),
        (CorruptFileError("a flipped bit"), "Failed"),
        (LeaseLostError("another process drives the flow run, and has its segments"), "Pending"),
    ],
)
def test_a_segment_that_the_server_made_and_did_not_begin_ends_with_the_run(
    server, tmp_path, ended, state
):
    with temporary_settings({PREFECT_API_URL: server.api_url}):
        states = asyncio.run(trains(tmp_path, ended))
    assert states.pop("never begun") == state
    assert states.pop("a task run alone") == state
    assert list(states.values()) == ["Completed"], "its steps were done before"


@task(task_run_name="stage/{step}")
async def stage(step):
    """A stage of a step."""


SHOWN = {
    "run": ["server away: steps 2-4"],  # and none of its stages
    "steps 0-1": ["stage/0", "stage/1"],
    "step 5": ["stage/5"],
}


@flow(persist_result=False)
async def outlives_its_server(folder: Path) -> dict[str, list[str]]:
    """A run whose server is away from step 2 on, and back at the end of step 4; what its page and
    those of its segments show."""
    config = RunConfig.model_validate({"logging": {"segment_steps": 2}})
    run = Run(RunStore(folder), config, run_info(folder))
    run.update(status="running")
    parent = FlowRunContext.get().flow_run.id
    async with get_client() as client, watch_server(60) as server:
        async with in_segments(run, server) as segments:
            for step in range(6):
                server._away_since = time.monotonic() if 2 <= step < 5 else None
                async with segments.at(step):
                    await stage(step)
                run.append(METRICS, {"step": step + 1, "reward": 0.5})
                timing = StageTiming(stage="train_step", step=step, busy_s=3.0)
                run.append(TIMINGS, timing_row(timing))
                run.update(step=step + 1)
                segments.end(step + 1)
        await asyncio.to_thread(EventsWorker.drain_all, timeout=10)
        found = {"run": parent}
        messages = []
        of_run = FlowRunFilter.model_validate({"parent_flow_run_id": {"any_": [parent]}})
        for each in await client.read_flow_runs(flow_run_filter=of_run):
            found[each.name] = each.id
            messages.append(each.state.message)
        shown = {}
        for name, flow_run_id in found.items():
            its = FlowRunFilter.model_validate({"id": {"any_": [flow_run_id]}})
            for _ in range(300):  # a server writes down what it is told some time later
                runs = await client.read_task_runs(flow_run_filter=its)
                names = sorted(each.name for each in runs if not each.name.startswith(FLOW))
                if names == SHOWN[name]:
                    break
                await asyncio.sleep(0.1)
            shown[name] = names
    return {**shown, "messages": sorted(messages)}


def test_a_server_that_was_away_is_told_of_the_steps_in_one_bar(server, tmp_path):
    with temporary_settings({PREFECT_API_URL: server.api_url}):
        shown = asyncio.run(outlives_its_server(tmp_path))
    first, last = shown.pop("messages")
    assert shown == SHOWN
    assert first.startswith("step 5: reward 0.500, ") and first.endswith("; train_step 100 %")
    assert last.startswith("steps 0-1: reward 0.500, ") and "s/step" in last
