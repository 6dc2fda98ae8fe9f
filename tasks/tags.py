"""Tags of task runs, by which the Prefect UI filters them.

They are put on a task run once it runs. Prefect asks the server for a slot of each tag that a task
run begins with, which would take longer than many stages do, and would stop a run whose server is
away.
"""

from __future__ import annotations

from prefect.context import TaskRunContext


def tag_stage(name: str) -> None:
    """Tag the task run that this is called in with its stage."""
    context = TaskRunContext.get()
    assert context is not None, "a stage's task is called in a task run"
    context.task_run.tags = [*context.task_run.tags, f"stage:{name}"]
