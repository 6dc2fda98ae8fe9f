"""Tags on task runs, by which the Prefect UI can filter them.

They are added once a task run is running. If a task run begins with tags, Prefect asks the server
for a concurrency slot for each of them; that takes longer than many stages do, and stops a run
whose server is away.
"""

from __future__ import annotations

from prefect.client.schemas.objects import TaskRun
from prefect.context import TaskRunContext

from mortal_steps.compute.pool import called

REPLAYED = "replayed"
"""Tag of a task run whose answer already existed when it was called, for example after a resume."""


def tag_stage(name: str, *, replayed: bool = False) -> None:
    """Tag the current task run with its stage and, if so, as replayed."""
    add_tags(_task_run(), f"stage:{name}", *([REPLAYED] if replayed else []))


def tag_worker(number: int | None = None) -> None:
    """Tag the current task run with the number of its worker, or of the worker that the stage
    called last."""
    number = called.get() if number is None else number
    if number is not None:
        add_tags(_task_run(), f"worker:{number}")


def add_tags(task_run: TaskRun, *tags: str) -> None:
    """Add the tags that a task run does not have yet."""
    task_run.tags = list(dict.fromkeys([*task_run.tags, *tags]))


def _task_run() -> TaskRun:
    context = TaskRunContext.get()
    assert context is not None, "a stage's task is called in a task run"
    return context.task_run
