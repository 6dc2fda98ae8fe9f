"""How the flow run of a deployment ends when its machine is to blame and the run itself is not."""

from __future__ import annotations

from typing import Any

from prefect import State
from prefect.context import FlowRunContext
from prefect.exceptions import Abort
from prefect.logging import get_run_logger
from prefect.states import Crashed

from mortal_steps.errors import DiskError, TransientError
from mortal_steps.store.files import is_disk_error


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
