"""What the Prefect server is told of a run's task runs, and what it is spared."""

import asyncio

import httpx
import pytest
from prefect import flow, task
from prefect.cache_policies import CacheKeyFnPolicy
from prefect.context import FlowRunContext
from prefect.settings import PREFECT_API_URL, PREFECT_LOCAL_STORAGE_PATH, temporary_settings

from mortal.server.api import wait_for_history
from mortal_tasks.server_watch import watch_server
from mortal_tasks.state_events import RUNNING_TOLD_AFTER_S
from mortal_tasks.tags import tag_stage, tag_worker
from tests.support.task_runs import stages_shown

SHORT_S = 0.2
LONG_S = RUNNING_TOLD_AFTER_S + 1.0
failed = set()


@task(
    name="sleeps",
    task_run_name="{name}",
    cache_policy=CacheKeyFnPolicy(cache_key_fn=lambda _, inputs: f"telling/{inputs['key']}"),
)
async def sleeps(name: str, key: str, seconds: float) -> str:
    tag_stage("sleeps")
    tag_worker(1)
    await asyncio.sleep(seconds)
    return key


@task(name="reward", task_run_name="reward/{step}/{shard}")
async def reward(step: int, shard: int, batch: str) -> str:
    tag_stage("reward")
    tag_worker(shard)
    return f"{batch}, scored by {shard}"


@task(name="get_batch", task_run_name="get_batch/{step}")
async def get_batch(step: int) -> str:
    tag_stage("get_batch")
    return f"batch {step}"


@task(name="train_step", task_run_name="train_step/{step}")
async def train_step(step: int, rewards: list[str]) -> None:
    tag_stage("train_step")


@task(name="fails", task_run_name="fails", retries=1, retry_delay_seconds=0.1)
async def fails_once() -> None:
    if "fails" not in failed:
        failed.add("fails")
        raise OSError("once")


@flow(persist_result=True)
async def stages():
    async with watch_server(60):
        await sleeps("short", "a", SHORT_S)
        await sleeps("cached", "a", SHORT_S)
        await asyncio.gather(sleeps("long", "b", LONG_S), fails_once())
        for step in range(2):
            batch = await get_batch(step)
            await train_step(step, [await reward(step, shard, batch) for shard in range(2)])
    return FlowRunContext.get().flow_run.id


@pytest.fixture(scope="module")
def told(server, tmp_path_factory):
    """The flow's task runs as the server knows them, by name, each with the names of its states."""
    folder = tmp_path_factory.mktemp("results")
    place = {PREFECT_API_URL: server.api_url, PREFECT_LOCAL_STORAGE_PATH: str(folder)}
    with temporary_settings(place):
        flow_run = asyncio.run(stages())
    assert wait_for_history(server, flow_run) == 0
    with httpx.Client(base_url=server.api_url) as client:
        wanted = {"flow_runs": {"id": {"any_": [str(flow_run)]}}}
        found = client.post("/task_runs/filter", json=wanted).json()
        for run in found:
            states = client.get(f"/task_run_states/?task_run_id={run['id']}").json()
            run["states"] = [state["name"] for state in states]
    return {run["name"]: run for run in found}


def test_a_task_run_of_less_than_a_second_is_told_of_once_with_name_length_and_tags(told):
    assert {name: told[name]["states"] for name in ("short", "cached", "long", "fails")} == {
        "short": ["Completed"],
        "cached": ["Cached"],
        "long": ["Running", "Completed"],
        "fails": ["AwaitingRetry", "Completed"],
    }
    for name, seconds in {"short": SHORT_S, "long": LONG_S}.items():
        assert seconds <= told[name]["total_run_time"] < seconds + 10
        assert told[name]["start_time"] < told[name]["end_time"]
        assert told[name]["tags"] == ["stage:sleeps", "worker:1"]
    assert told["cached"]["tags"] == ["stage:sleeps", "replayed"]


def test_the_shortest_stages_of_a_step_are_told_as_one_that_says_each(told):
    shown = stages_shown(told)
    for step in range(2):
        of_step = {"get_batch": 1, "reward": 2, "train_step": 1}
        assert {stage: shown[stage, step] for stage in of_step} == of_step
    known = {run["id"] for run in told.values()}
    linked = [link["id"] for link in told["train_step/1"]["task_inputs"]["rewards"]]
    assert linked and known.issuperset(linked)
