"""Task runs that the Prefect server may not have written to its database yet.

Task runs reach the server as events, which it holds in memory before they are in its database. A
server that is killed forgets the last ones, although it has confirmed them. So each task run that
has ended is kept here until the database has it, and is sent again after the server was away.
Sending it twice changes nothing, because the server recognises a state by its id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from uuid import UUID

from prefect import Task
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import State, TaskRun
from prefect.events import Event
from prefect.events.worker import EventsWorker
from prefect.utilities.engine import emit_task_run_state_change_event

from mortal_tasks.short_stages import ShortStages

QUERY_SIZE = 200
"""Task runs asked about in one request to the server."""


class History:
    """Task runs of this flow run that have ended and may be missing from the server's database."""

    def __init__(self) -> None:
        self._unrecorded: dict[UUID, tuple[TaskRun, State[Any]]] = {}
        self._running: dict[UUID, asyncio.TimerHandle] = {}
        """Of task runs that have just begun: what is going to say so."""
        self._short = ShortStages()
        self.muted = False
        """Whether nothing is sent, because the server does not know the flow run.

        A task run of a flow run that somebody has deleted cannot be written down. Prefect's server
        tries it again and again, and writes down no other run's meanwhile.
        """

    def __len__(self) -> int:
        return len(self._unrecorded)

    def keep(self, task_run: TaskRun, state: State[Any]) -> None:
        """Remember a task run that has ended."""
        self._unrecorded[task_run.id] = (task_run, state)

    def takes_as_short(self, task_run: TaskRun, state: State[Any]) -> bool:
        """Whether this task run is short, and is shown as part of another one; see
        short_stages.py."""
        return self._short.take(task_run, state)

    def send(
        self,
        task_run: TaskRun,
        initial_state: State[Any] | None,
        validated_state: State[Any],
        follows: Event | None = None,
    ) -> Event | None:
        """Send the event of a state, unless `muted`."""
        if self.muted:
            return None
        return emit_task_run_state_change_event(task_run, initial_state, validated_state, follows)

    def tell_short(self, before: int | None = None) -> None:
        """Send the short stages of the steps before this one, or all of them, to the server."""
        for context, task_run, state in self._short.pop(before):
            context.run(self.send, task_run, None, state)
            self.keep(task_run, state)

    def shown_as(self, task_run_id: UUID) -> UUID:
        """The task run that the server gets in place of this one; usually itself."""
        return self._short.shown_as(task_run_id) or task_run_id

    def say_later(self, task_run_id: UUID, delay_s: float, say: Callable[[], object]) -> None:
        """Call `say` after a while, unless `say_no_longer` is called first."""
        later = asyncio.get_running_loop().call_later
        self._running[task_run_id] = later(delay_s, say)

    def say_no_longer(self, task_run_id: UUID) -> None:
        """Cancel the call planned by `say_later`: this task run has reached a later state."""
        waiting = self._running.pop(task_run_id, None)
        if waiting is not None:
            waiting.cancel()

    async def forget_recorded(self, client: PrefectClient) -> None:
        """Forget the oldest task runs that the database has; one request asks about 200 of them."""
        while oldest := list(self._unrecorded)[:QUERY_SIZE]:
            wanted = {
                "id": {"any_": [str(task_run_id) for task_run_id in oldest]},
                "state": {"type": {"any_": ["COMPLETED", "FAILED"]}},
            }
            answer = await client.request("POST", "/task_runs/count", json={"task_runs": wanted})
            if answer.json() < len(oldest):
                return
            for task_run_id in oldest:
                self._unrecorded.pop(task_run_id, None)  # another question was answered before

    def tell_again(self) -> None:
        """Send the last state of each task run again.

        That includes states that Prefect's own client still holds: a server that went away and came
        back unnoticed may have lost them.
        """
        for task_run, state in list(self._unrecorded.values()):
            self.send(task_run, None, state)

    def give_up(self) -> None:
        """Drop what has not been sent, so that the process can exit although its server is gone for
        good. Prefect would try each event ten times, and offers no other way to stop it."""
        EventsWorker.instance()._queue.queue.clear()


history: ContextVar[History | None] = ContextVar("history", default=None)
"""The `History` of the flow run that is being watched; see tasks/server_watch.py."""


def keep_in_history(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> None:
    """State hook of every stage's task."""
    kept = history.get()
    if kept is not None and kept.shown_as(task_run.id) == task_run.id:
        kept.keep(task_run, state)
