"""Tags of task runs, by which the Prefect UI filters them.

They are put on a task run once it runs. Prefect asks the server for a slot of each tag that a task
run begins with, which would take longer than many stages do, and would stop a run whose server is
away.
"""

from __future__ import annotations

from prefect.client.schemas.objects import TaskRun
from prefect.context import TaskRunContext

from mortal_steps.compute.pool import called

REPLAYED = "replayed"
"""Of a task run whose answer was there before it was asked for, as after a resume."""


def tag_stage(name: str, *, replayed: bool = False) -> None:
    """Tag the task run that this is called in with its stage, and as replayed if it is."""
    add_tags(_task_run(), f"stage:{name}", *([REPLAYED] if replayed else []))


def tag_worker(number: int | None = None) -> None:
    """Tag it with the number of its worker, or of the one that the stage has just called."""
    number = called.get() if number is None else number
    if number is not None:
        add_tags(_task_run(), f"worker:{number}")


def add_tags(task_run: TaskRun, *tags: str) -> None:
    """Tag a task run with what it is not tagged with yet."""
    task_run.tags = list(dict.fromkeys([*task_run.tags, *tags]))


def _task_run() -> TaskRun:
    context = TaskRunContext.get()
    assert context is not None, "a stage's task is called in a task run"
    return context.task_run
