"""The segments of a run on a real server."""

import asyncio
from pathlib import Path

import pytest
from prefect import Flow, flow, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.context import FlowRunContext
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Pending

from mortal_steps.config import RunConfig
from mortal_steps.errors import CorruptFileError
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_tasks.segments import FLOW, in_segments
from mortal_tasks.server_watch import watch_server
from tests.support.run_info import run_info


@task
def asked_for():
    """Under which a segment was made whose server died before it began."""


@flow(persist_result=False)
async def trains(folder: Path, ended: Exception | None) -> dict[str, str]:
    """A run whose last segment never begins; the state of each segment, by its name."""
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
                if ended is not None:
                    raise ended
        except CorruptFileError:
            pass
        of_run = FlowRunFilter.model_validate({"parent_flow_run_id": {"any_": [parent]}})
        found = await client.read_flow_runs(flow_run_filter=of_run)
    return {each.name: each.state_name for each in found}


@pytest.mark.parametrize(
    ("ended", "state"), [(None, "Completed"), (CorruptFileError("a flipped bit"), "Failed")]
)
def test_a_segment_that_the_server_made_and_did_not_begin_ends_with_the_run(
    server, tmp_path, ended, state
):
    with temporary_settings({PREFECT_API_URL: server.api_url}):
        states = asyncio.run(trains(tmp_path, ended))
    assert states.pop("never begun") == state
    assert list(states.values()) == ["Completed"], "its steps were done before"
