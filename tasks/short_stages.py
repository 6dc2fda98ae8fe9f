"""Short stages of a step are shown as one task run.

A stage of a few milliseconds cannot be seen on a timeline of seconds, but it costs the server as
much as any other: two rows and the entries of twenty indexes, 2.5 KB. So the short stages of one
step are sent as one task run when the step is done. Its name lists each stage with its duration, it
lasts as long as all of them together, and it has the tags of all of them.

A stage that was long, failed, was retried or came from a cache stays a task run of its own.
`generate` and `train_step` always do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed

SHORT_S = 0.1
SHARE = ("get_batch", "reward", "sync_weights")
"""Stages that can be combined; their task runs are called `stage/step...`."""


@dataclass(kw_only=True, slots=True)
class Shared:
    """The task run that combines the short stages of one step in one flow run."""

    context: Context
    """The Prefect context in which it is sent; it says which flow run the task run belongs to."""
    id: UUID = field(default_factory=uuid4)
    task_runs: list[TaskRun] = field(default_factory=list)


class ShortStages:
    """Short stages that have ended and that the server was not told of yet."""

    def __init__(self) -> None:
        self._steps: dict[tuple[int, UUID | None], Shared] = {}

    def take(self, task_run: TaskRun, state: State[Any]) -> bool:
        """Keep this task run, which has ended as `state`, if it is a short stage; returns whether
        it is."""
        stage, _, indices = task_run.name.partition("/")
        if stage not in SHARE or state.name != "Completed" or task_run.run_count != 1:
            return False
        if task_run.total_run_time.total_seconds() >= SHORT_S:
            return False
        of_step = (int(indices.partition("/")[0]), task_run.flow_run_id)
        if of_step not in self._steps:
            self._steps[of_step] = Shared(context=copy_context())
        self._steps[of_step].task_runs.append(task_run)
        return True

    def shown_as(self, task_run_id: UUID) -> UUID | None:
        """The combined task run that will be sent in place of this one, if this one is among the
        short stages."""
        for shared in self._steps.values():
            if any(each.id == task_run_id for each in shared.task_runs):
                return shared.id
        return None

    def pop(self, before: int | None = None) -> Iterator[tuple[Context, TaskRun, State[Any]]]:
        """Remove and return what is to be sent for the steps before this one, or for all steps."""
        for step, flow_run_id in list(self._steps):
            if before is None or step < before:
                shared = self._steps.pop((step, flow_run_id))
                yield shared.context, *_as_one(step, shared)


def _as_one(step: int, shared: Shared) -> tuple[TaskRun, State[Any]]:
    stages = sorted(shared.task_runs, key=_begun)
    length = sum((each.total_run_time for each in stages), timedelta())
    begun = _begun(stages[0])
    state: State[Any] = Completed(timestamp=begun + length)
    task_run = TaskRun(
        id=shared.id,
        name=f"step {step}: {_lengths(stages)}",
        flow_run_id=stages[0].flow_run_id,
        task_key="short-stages",
        dynamic_key=f"{step}-{shared.id.hex[:8]}",  # each attempt has its own
        tags=list(dict.fromkeys(tag for each in stages for tag in each.tags)),
        run_count=1,
        flow_run_run_count=stages[0].flow_run_run_count,
        expected_start_time=begun,
        start_time=begun,
        end_time=state.timestamp,
        total_run_time=length,
        state=state,
    )
    return task_run, state


def _lengths(stages: list[TaskRun]) -> str:
    """`get_batch 3 ms, reward 2 + 1 ms`."""
    of_stage: dict[str, list[str]] = {}
    for each in stages:
        ms = 1e3 * each.total_run_time.total_seconds()
        of_stage.setdefault(each.name.partition("/")[0], []).append(f"{max(ms, 1):.0f}")
    return ", ".join(f"{stage} {' + '.join(lengths)} ms" for stage, lengths in of_stage.items())


def _begun(task_run: TaskRun) -> datetime:
    assert task_run.start_time is not None, "it has ended"
    return task_run.start_time
