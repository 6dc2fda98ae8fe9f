"""What the Prefect server is told of a run's task runs."""

import asyncio
import gc
import time
import weakref

import httpx
import pytest
from prefect import flow, task
from prefect.context import FlowRunContext
from prefect.settings import PREFECT_API_URL, temporary_settings

from mortal_steps.types import BatchRef, FileRef, StageTiming
from mortal_tasks.durability import DURABLE, forget_results, tag_stage, tag_worker
from mortal_tasks.server_watch import watch_server


@task(name="get_batch", task_run_name="get_batch/{step}", **DURABLE)
async def get_batch(step: int, replayed: bool = False) -> str:
    tag_stage("get_batch", replayed=replayed)
    return f"batch {step}"


@task(name="train_step", task_run_name="train_step/{step}", **DURABLE)
async def train_step(step: int, batch: str) -> None:
    tag_stage("train_step")
    tag_worker(1)


@flow(persist_result=False)
async def stages():
    async with watch_server(60):
        batch = await get_batch(0)
        await train_step(0, batch)
        await get_batch.with_options(task_run_name="again")(0, replayed=True)
    return FlowRunContext.get().flow_run.id


@pytest.fixture(scope="module")
def told(server):
    """The flow's task runs as the server knows them, by name."""
    with temporary_settings({PREFECT_API_URL: server.api_url}):
        flow_run = asyncio.run(stages())
    wanted = {"flow_runs": {"id": {"any_": [str(flow_run)]}}}
    deadline = time.monotonic() + 30
    with httpx.Client(base_url=server.api_url) as client:
        while True:
            found = client.post("/task_runs/filter", json=wanted).json()
            if len(found) == 3 and all(run["state_type"] == "COMPLETED" for run in found):
                return {run["name"]: run for run in found}
            assert time.monotonic() < deadline, found
            time.sleep(0.2)


def test_a_task_run_has_the_tags_of_its_stage_and_its_worker(told):
    assert told["get_batch/0"]["tags"] == ["stage:get_batch"]
    assert told["train_step/0"]["tags"] == ["stage:train_step", "worker:1"]


def test_one_that_was_answered_before_says_so(told):
    assert told["again"]["tags"] == ["stage:get_batch", "replayed"]


def test_a_task_run_is_linked_to_those_whose_results_it_uses(told):
    linked = [link["id"] for link in told["train_step/0"]["task_inputs"]["batch"]]
    assert linked == [told["get_batch/0"]["id"]]


MOST = 6
"""Links to the last result, which is held, and to one or two that Prefect still has in hand. Each
result has two: its own and that of the timing in it."""


@task(cache_result_in_memory=False)
async def commits(step: int) -> BatchRef:
    file = FileRef(path=f"steps/{step:06d}/batch.json", sha256=f"{step:064d}")
    timing = StageTiming(stage="get_batch", step=step, busy_s=0.0)
    return BatchRef(step=step, file=file, num_problems=4, timing=timing)


@flow
async def commits_often(steps: int) -> tuple[int, bool]:
    """How many links are left at the end, and whether those of the last result are among them."""
    for step in range(steps):
        held = await commits(step)
    for _ in range(30):
        await asyncio.sleep(0.5)  # Prefect holds a result until its event is sent,
        gc.collect()  # and then in a circle
        forget_results()
        if len(links()) <= MOST:
            break
    refs = [ref for _, _, ref in links().values()]
    return len(refs), {weakref.ref(held), weakref.ref(held.timing)} <= set(refs)


def links():
    context = FlowRunContext.get()
    assert context is not None
    return context.run_results


def test_links_to_results_that_nobody_holds_are_forgotten(server):
    with temporary_settings({PREFECT_API_URL: server.api_url}):
        left, of_the_last = asyncio.run(commits_often(20))
    assert left <= MOST
    assert of_the_last
