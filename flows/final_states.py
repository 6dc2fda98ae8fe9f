"""How the flow run of a deployment ends when its machine is to blame and the run itself is not."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from prefect import State
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.exceptions import Abort
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Crashed, Suspended

from mortal_steps.errors import DiskError, TransientError
from mortal_steps.store.files import is_disk_error
from mortal_tasks.best_effort import best_effort


def state_for(ended: Exception) -> State[Any]:
    """The state `Crashed`, if a lost worker, an outage or the disk has ended a deployment's flow
    run.

    `mortal automate` starts crashed flow runs again. A plain `OSError` counts as well, because
    Prefect keeps files on that disk, too. Raises any other error, which makes the flow run Failed.
    """
    of_the_machine = isinstance(ended, (TransientError, DiskError)) or is_disk_error(ended)
    if not (of_the_machine and is_deployed()):
        raise ended
    get_run_logger().error("%s", ended)
    return Crashed(message=str(ended))


async def stay_suspended() -> None:
    """Let this flow run wait for Resume however long that takes. The button *Pause* of Prefect's
    page suspends it for five minutes, after which *Resume* would make it Failed."""
    suspended: State[Any] = Suspended(message="Resume continues it at its last step.")
    async with get_client() as client:
        setting = client.set_flow_run_state(UUID(flow_run.id), suspended, force=True)
        await best_effort(setting, "Resume makes this flow run Failed after some minutes; Retry it")


def ended_already(state: State[Any]) -> Abort:
    """To be raised in a flow whose end the server knows, or is not to be told."""
    ended = Abort(state.message)
    ended.state = state  # type: ignore[attr-defined]  # what the engine says of the end
    return ended


def is_deployed() -> bool:
    """Whether a deployment made this flow run. This does not use `prefect.runtime`, which would ask
    the server; the server may be away."""
    context = FlowRunContext.get()
    return context is not None and getattr(context.flow_run, "deployment_id", None) is not None
