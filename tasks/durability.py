"""What every stage's task has in common: when it is retried, and how it is tagged.

No task has a cache: what a stage has made is in the run directory, and the worker that is asked for
it again answers from there. So a Retry of the flow run and a new flow run of the same run id find
the same.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import FlowRunContext, TaskRunContext
from prefect.utilities.annotations import opaque as taken_whole

from mortal_steps.compute.pool import called
from mortal_steps.errors import TransientError

T = TypeVar("T")

REPLAYED = "replayed"
"""Tag of a task run whose answer already existed when it was called, for example after a resume."""
RETRIES = 3
RETRY_DELAYS_S = [1.0, 5.0, 15.0]


def is_transient(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
    """Whether Prefect retries the task: only after a failure of the infrastructure."""
    return isinstance(state.data, TransientError)


DURABLE: dict[str, Any] = {
    "retries": RETRIES,
    "retry_delay_seconds": RETRY_DELAYS_S,
    "retry_condition_fn": is_transient,
    "cache_result_in_memory": False,
    "cache_policy": NO_CACHE,
}
"""Options of every stage's task. Each stage is idempotent by itself."""


def opaque(value: T) -> T:
    """Wrap `value` as an input of a task so that Prefect does not search its fields for the results
    of other tasks, which takes long. The task is still linked to the one that made it."""
    return cast(T, taken_whole(value))


def tag_stage(name: str, *, replayed: bool = False) -> None:
    """Tag the current task run with its stage and, if so, as replayed."""
    _add_tags(f"stage:{name}", *([REPLAYED] if replayed else []))


def tag_worker(number: int | None = None) -> None:
    """Tag the current task run with the number of its worker, or of the worker that the stage
    called last."""
    number = called.get() if number is None else number
    if number is not None:
        _add_tags(f"worker:{number}")


def _add_tags(*tags: str) -> None:
    """Add tags by which the Prefect UI can filter task runs, once the task run is running.

    If a task run begins with tags, Prefect asks the server for a concurrency slot for each of them;
    that takes longer than many stages do, and stops a run whose server is away.
    """
    context = TaskRunContext.get()
    assert context is not None, "a stage's task is called in a task run"
    context.task_run.tags = list(dict.fromkeys([*context.task_run.tags, *tags]))


def forget_results() -> None:
    """Drop Prefect's notes on which task run made which result, for results that are no longer in
    use.

    Prefect keeps the state of every result and of each of its fields until the flow run ends, about
    4 KB per task run, in order to link task runs to those whose results they use.
    """
    context = FlowRunContext.get()
    if context is None:
        return
    links = context.run_results
    for key in [key for key, (_, _, ref) in links.items() if ref is None or ref() is None]:
        del links[key]
    # The same with what task runs have made of Prefect's assets, of which no stage has any.
    assets = context.task_run_assets
    for task_run_id in [task_run_id for task_run_id, made in assets.items() if not made]:
        del assets[task_run_id]
