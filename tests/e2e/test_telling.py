"""What the Prefect server is told of a run's task runs, and what it is spared."""

import asyncio

import httpx
from prefect import flow, task
from prefect.cache_policies import CacheKeyFnPolicy
from prefect.context import FlowRunContext
from prefect.settings import PREFECT_API_URL, PREFECT_LOCAL_STORAGE_PATH, temporary_settings

from mortal.server.api import wait_for_history
from mortal_tasks.server_watch import watch_server
from mortal_tasks.tags import tag_stage, tag_worker
from mortal_tasks.telling import RUNNING_TOLD_AFTER_S

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
    return FlowRunContext.get().flow_run.id


def test_a_short_task_run_is_told_of_once_and_all_keep_their_names_lengths_and_tags(
    server, tmp_path
):
    place = {PREFECT_API_URL: server.api_url, PREFECT_LOCAL_STORAGE_PATH: str(tmp_path)}
    with temporary_settings(place):
        flow_run = asyncio.run(stages())
    assert wait_for_history(server, flow_run) == 0
    with httpx.Client(base_url=server.api_url) as client:
        wanted = {"flow_runs": {"id": {"any_": [str(flow_run)]}}}
        found = client.post("/task_runs/filter", json=wanted).json()
        states = {
            run["name"]: [
                state["name"]
                for state in client.get(f"/task_run_states/?task_run_id={run['id']}").json()
            ]
            for run in found
        }
    runs = {run["name"]: run for run in found}
    assert states == {
        "short": ["Completed"],
        "cached": ["Cached"],
        "long": ["Running", "Completed"],
        "fails": ["AwaitingRetry", "Completed"],
    }
    for name, seconds in {"short": SHORT_S, "long": LONG_S}.items():
        assert seconds <= runs[name]["total_run_time"] < seconds + 1
        assert runs[name]["start_time"] < runs[name]["end_time"]
        assert runs[name]["tags"] == ["stage:sleeps", "worker:1"]
    assert runs["cached"]["tags"] == ["stage:sleeps", "replayed"]
