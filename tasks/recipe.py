"""What a recipe asks of Prefect beside its stages: order after a kill, and who was asked."""

from collections.abc import Sequence
from typing import Any

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import State, StateType
from prefect.runtime import flow_run
from prefect.states import Crashed
from prefect.utilities.urls import url_for

from mortal_tasks.left_behind import STAYS, UNFINISHED, mark_task_runs
from mortal_tasks.server_watch import best_effort

RECIPE_TAG = "recipe:"
"""Before the recipe's name: a tag of all its flow runs."""
UID_TAG = "recipe-uid:"
"""Before the beginning of the uid of its record: the same."""


async def mark_what_was_left(of_recipe: Sequence[str]) -> None:
    """Mark flow runs and task runs with these tags that a killed process has left as Crashed, but
    for those of deployments, which automations begin again; and tag this flow run so that it is
    found. Whoever calls this drives the recipe."""
    await best_effort(_mark(of_recipe), STAYS)


async def _mark(of_recipe: Sequence[str]) -> None:
    own = str(flow_run.id)
    crashed: State[Any] = Crashed(message="The process that drove the recipe ended.")
    async with get_client() as client:
        this = await client.read_flow_run(flow_run.id)
        tags = list(dict.fromkeys([*this.tags, *of_recipe]))
        await client.update_flow_run(this.id, tags=tags)
        # Also those of this flow run, which may come again, and of flow runs that have ended.
        of_those = FlowRunFilter.model_validate({"tags": {"all_": list(of_recipe)}})
        await mark_task_runs(client, of_those, crashed)
        left = {"tags": {"all_": list(of_recipe)}, "state": {"type": {"any_": UNFINISHED}}}
        for each in await client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(left)):
            if str(each.id) != own and each.deployment_id is None:
                await client.set_flow_run_state(each.id, crashed, force=True)


async def asked_at(of_recipe: Sequence[str]) -> str | None:
    """Return the page of another flow run of the recipe that waits for a person, if there is one
    and the server answers."""
    return await best_effort(_suspended(of_recipe), "another flow run may ask the same")


async def _suspended(of_recipe: Sequence[str]) -> str | None:
    wanted = {"tags": {"all_": list(of_recipe)}, "state": {"type": {"any_": [StateType.PAUSED]}}}
    async with get_client() as client:
        found = await client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate(wanted))
    others = [each for each in found if str(each.id) != str(flow_run.id)]
    return url_for("flow-run", obj_id=others[0].id) if others else None
