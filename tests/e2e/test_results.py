"""What Prefect keeps of a run's results does not grow with its steps."""

import asyncio
import gc
import weakref

from prefect import flow, task
from prefect.context import FlowRunContext
from prefect.settings import PREFECT_API_URL, temporary_settings

from mortal_steps.types import BatchRef, FileRef, StageTiming
from tasks.results import forget_results


@task(cache_result_in_memory=False)
async def commits(step: int) -> BatchRef:
    file = FileRef(path=f"steps/{step:06d}/batch.json", sha256=f"{step:064d}")
    timing = StageTiming(stage="get_batch", step=step, busy_s=0.0)
    return BatchRef(step=step, file=file, num_problems=4, timing=timing)


@flow
async def commits_often(steps: int) -> tuple[list[int], bool]:
    """Links after each step, and whether that of a result still held is among them."""
    kept = []
    for step in range(steps):
        held = await commits(step)
        gc.collect()  # Prefect's own objects hold a result in a circle
        forget_results()
        kept.append(len(links()))
    return kept, weakref.ref(held) in [ref for _, _, ref in links().values()]


def links():
    context = FlowRunContext.get()
    assert context is not None
    return context.run_results


def test_links_to_results_that_nobody_holds_are_forgotten(server):
    with temporary_settings({PREFECT_API_URL: server.api_url}):
        kept, held_is_linked = asyncio.run(commits_often(4))
    assert kept == [2, 2, 2, 2]  # the reference and the timing in it
    assert held_is_linked
