"""Decides which states of a task run are sent to the Prefect server.

Prefect sends an event for each state: Pending, Running, and the final one. The server stores each
of them beside the task run itself, which is most of what a short stage costs it. But the last event
contains all that the pages show: name, tags, beginning and duration. So a task run that ends soon
is sent once, when it has ended; one that takes longer is shown as Running meanwhile. Of the
shortest, only their step is shown; see short_stages.py.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import Any

from prefect import task_engine
from prefect.client.schemas.objects import State, TaskRun, TaskRunResult
from prefect.context import TaskRunContext
from prefect.events import Event
from prefect.utilities.engine import emit_task_run_state_change_event

from mortal_tasks.history import History, history
from mortal_tasks.tags import tag_stage

RUNNING_TOLD_AFTER_S = 1.0
CACHED = "Cached"
"""Prefect's name for the state Completed of a task whose function was not called."""


def send_state(
    task_run: TaskRun,
    initial_state: State[Any] | None,
    validated_state: State[Any],
    follows: Event | None = None,
) -> Event | None:
    """Send the event of a state now, later or never; returns the event if it was sent now. For flow
    runs that are not ours, everything is sent at once."""
    kept = history.get()
    if kept is None:
        return emit_task_run_state_change_event(task_run, initial_state, validated_state, follows)
    # Where the result lies is of use to this process alone, and a quarter of what would be kept.
    without_result = copy(validated_state)  # the same id and time, unlike `model_copy`
    without_result.data = None
    send = partial(kept.send, task_run, initial_state, without_result, follows)
    kept.say_no_longer(task_run.id)
    if validated_state.is_pending():
        return None
    if validated_state.is_running():
        _link(task_run, kept)
        kept.say_later(task_run.id, RUNNING_TOLD_AFTER_S, send)
        return None
    if kept.takes_as_short(task_run, validated_state):
        return None
    _link(task_run, kept)
    context = TaskRunContext.get()
    if validated_state.name == CACHED and context is not None:
        tag_stage(context.task.name, replayed=True)
    return send()


def _link(task_run: TaskRun, kept: History) -> None:
    """Link a task run to those whose results it uses, and send nothing about its other inputs."""
    # Unique among those of one name in one flow run; Prefect's has 36 characters, and an index.
    task_run.dynamic_key = task_run.id.hex[-12:]
    for name, inputs in list(task_run.task_inputs.items()):
        linked = {kept.shown_as(each.id) for each in inputs if isinstance(each, TaskRunResult)}
        del task_run.task_inputs[name]
        if linked:
            task_run.task_inputs[name] = [TaskRunResult(id=shown) for shown in linked]


def send_fewer_events() -> None:
    """Make Prefect's engine send events by `send_state`. The engine has no setting for this."""
    task_engine.emit_task_run_state_change_event = send_state  # type: ignore[attr-defined]
