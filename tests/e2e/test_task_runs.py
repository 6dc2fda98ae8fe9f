"""What the Prefect server is told of a run's task runs."""

import asyncio
import time

import httpx
import pytest
from prefect import flow, task
from prefect.context import FlowRunContext
from prefect.settings import PREFECT_API_URL, PREFECT_LOCAL_STORAGE_PATH, temporary_settings

from mortal_tasks.durability import DURABLE, cached_by, tag_stage, tag_worker
from mortal_tasks.server_watch import watch_server


class Session:
    """As much of a run as the key of a stage's result needs."""

    class run:
        class info:
            uid = "telling"

    made = False

    def is_committed(self, stage, step, shard):
        return self.made


BY_STEP = cached_by("get_batch", lambda step: f"{step}")


@task(name="get_batch", task_run_name="get_batch/{step}", **BY_STEP)
async def get_batch(session: Session, step: int) -> str:
    session.made = True
    return f"batch {step}"


@task(name="train_step", task_run_name="train_step/{step}", **DURABLE)
async def train_step(step: int, batch: str) -> None:
    tag_stage("train_step")
    tag_worker(1)


@flow(persist_result=True)
async def stages():
    session = Session()
    async with watch_server(60):
        batch = await get_batch(session, 0)
        await train_step(0, batch)
        await get_batch.with_options(task_run_name="again")(session, 0)
    return FlowRunContext.get().flow_run.id


@pytest.fixture(scope="module")
def told(server, tmp_path_factory):
    """The flow's task runs as the server knows them, by name."""
    folder = tmp_path_factory.mktemp("results")
    place = {PREFECT_API_URL: server.api_url, PREFECT_LOCAL_STORAGE_PATH: str(folder)}
    with temporary_settings(place):
        flow_run = asyncio.run(stages())
    wanted = {"flow_runs": {"id": {"any_": [str(flow_run)]}}}
    deadline = time.monotonic() + 120
    with httpx.Client(base_url=server.api_url, timeout=30) as client:
        while True:
            found = client.post("/task_runs/filter", json=wanted).json()
            if len(found) == 3 and all(run["state_type"] == "COMPLETED" for run in found):
                return {run["name"]: run for run in found}
            assert time.monotonic() < deadline, found
            time.sleep(0.2)


def test_a_task_run_has_the_tags_of_its_stage_and_its_worker(told):
    assert told["get_batch/0"]["tags"] == ["stage:get_batch"]
    assert told["train_step/0"]["tags"] == ["stage:train_step", "worker:1"]


def test_one_that_is_answered_from_the_cache_says_so(told):
    assert told["again"]["state_name"] == "Cached"
    assert told["again"]["tags"] == ["stage:get_batch", "replayed"]


def test_a_task_run_is_linked_to_those_whose_results_it_uses(told):
    linked = [link["id"] for link in told["train_step/0"]["task_inputs"]["batch"]]
    assert linked == [told["get_batch/0"]["id"]]
