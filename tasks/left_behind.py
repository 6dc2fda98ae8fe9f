"""Task runs that a killed process has left unfinished: the server would show them as running for
ever."""

from typing import Any
from uuid import UUID

from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, TaskRunFilter
from prefect.client.schemas.objects import State, StateType
from prefect.runtime import flow_run
from prefect.states import Crashed

from mortal_tasks.server_watch import best_effort

UNFINISHED = [StateType.PENDING, StateType.RUNNING]
STAYS = "what was left unfinished stays Running"
"""What happens where the server does not answer."""
PAGE = 200


async def mark_task_runs(client: PrefectClient, of: FlowRunFilter, crashed: State[Any]) -> None:
    """Set the unfinished task runs of these flow runs to a state."""
    left = TaskRunFilter.model_validate({"state": {"type": {"any_": UNFINISHED}}})
    while runs := await client.read_task_runs(flow_run_filter=of, task_run_filter=left, limit=PAGE):
        for each in runs:
            await client.set_task_run_state(each.id, crashed, force=True)


async def mark_own_task_runs() -> None:
    """Mark those of this flow run, which comes again, as Crashed; to be called before it has any
    of its own."""
    await best_effort(_mark_own(), STAYS)


async def _mark_own() -> None:
    own = FlowRunFilter.model_validate({"id": {"any_": [UUID(flow_run.id)]}})
    async with get_client() as client:
        crashed: State[Any] = Crashed(message="The process of this flow run ended.")
        await mark_task_runs(client, own, crashed)
