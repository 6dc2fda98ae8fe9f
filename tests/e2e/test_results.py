"""What Prefect keeps of a run's results does not grow with its steps."""

import asyncio
import gc
import weakref
from pathlib import Path

from prefect import flow, task
from prefect.cache_policies import CacheKeyFnPolicy
from prefect.context import FlowRunContext
from prefect.results import get_result_store
from prefect.settings import PREFECT_API_URL, PREFECT_LOCAL_STORAGE_PATH, temporary_settings

from mortal_steps.types import BatchRef, FileRef, StageTiming
from mortal_tasks.results import drop_results, forget_results, use_result_folder

MOST = 6
"""Links to the last result, which is held, and to one or two that Prefect still has in hand. Each
result has two: its own and that of the timing in it."""


@task(cache_result_in_memory=False)
async def commits(step: int) -> BatchRef:
    file = FileRef(path=f"steps/{step:06d}/batch.json", sha256=f"{step:064d}")
    timing = StageTiming(stage="get_batch", step=step, busy_s=0.0)
    return BatchRef(step=step, file=file, num_problems=4, timing=timing)


@task(cache_policy=CacheKeyFnPolicy(cache_key_fn=lambda _, inputs: inputs["key"]))
async def keeps(key: str) -> int:
    return 1


@flow(persist_result=True)
async def keeps_and_drops(run_uid: str) -> list[list[str]]:
    """Files of the run's results: of all steps, of the last ones, and when the run has ended."""
    use_result_folder()
    for key in ("get_batch/8", "generate/8-0-v8", "generate/9-1-v9", "reward/10-0-abc"):
        await keeps(f"{run_uid}/{key}")
    await keeps(f"{run_uid}-other/get_batch/0")
    folder = Path(str(get_result_store().result_storage.basepath))
    found = []
    for drop in (lambda: None, lambda: drop_results(run_uid, 9), lambda: drop_results(run_uid)):
        drop()
        files = folder.glob(f"{run_uid}*/*/*")
        found.append(sorted(str(path.relative_to(folder)) for path in files))
    return found


def test_results_of_steps_that_are_done_go_and_those_of_others_stay(server, tmp_path):
    place = {PREFECT_API_URL: server.api_url, PREFECT_LOCAL_STORAGE_PATH: str(tmp_path)}
    with temporary_settings(place):
        everything, ahead, ended = asyncio.run(keeps_and_drops("a1b2"))
    assert len(everything) == 5
    rest = ["a1b2-other/get_batch/0"]
    assert ahead == [*rest, "a1b2/generate/9-1-v9", "a1b2/reward/10-0-abc"]
    assert ended == rest


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
