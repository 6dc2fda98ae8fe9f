"""What Prefect keeps of a run's results does not grow with its steps."""

import asyncio
import gc
import weakref

from prefect import flow, task
from prefect.context import FlowRunContext
from prefect.settings import PREFECT_API_URL, temporary_settings

from mortal_steps.types import BatchRef, FileRef, StageTiming
from tasks.results import forget_results

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
