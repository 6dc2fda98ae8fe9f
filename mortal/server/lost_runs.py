"""Flow runs that the server takes for running, although no process drives their runs any more.

A process that was killed together with its `mortal schedule` cannot tell the server, and a server
whose database was restored from a copy believes what was true when the copy was made. Such a flow
run holds the place of its deployment: later ones wait for it, or are cancelled.

This module imports Prefect, which reads its settings when it is imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.states import Cancelled, Completed, Crashed

from mortal_flows.settings import run_of
from mortal_steps.errors import MortalError
from mortal_steps.report.summary import summarize
from mortal_steps.runs.lease import is_driven
from mortal_steps.runs.run import Run, find_run

TAKEN_FOR_RUNNING = [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING]
GONE = "Its process was gone when `mortal schedule` was started."


def correct_lost_runs(deployments: Sequence[UUID], runs_dir: Path) -> Iterator[str]:
    """Tell the server what became of such flow runs of these deployments (their ids); a line for
    each.

    A flow run whose run is not in `runs_dir`, or cannot be read, stays as it is.
    """
    wanted = FlowRunFilterState(type=FlowRunFilterStateType(any_=TAKEN_FOR_RUNNING))
    with get_client(sync_client=True) as client:
        found = client.read_flow_runs(
            deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=list(deployments))),
            flow_run_filter=FlowRunFilter(state=wanted),
        )
        for flow_run in found:
            run_id = run_of(flow_run.id, flow_run.name, runs_dir)
            if run_id is None:
                continue
            try:
                run = find_run(runs_dir, run_id)
                if is_driven(run.store):
                    continue
                became = _what_became_of_it(flow_run, run)
            except MortalError as error:
                yield f"flow run {flow_run.name} stays {flow_run.state_name}: {error}"
                continue
            client.set_flow_run_state(flow_run.id, became)
            yield _told(flow_run, run, became)


def _what_became_of_it(flow_run: FlowRun, run: Run) -> State[Any]:
    if run.is_complete():
        return Completed(message=summarize(run).headline)
    if flow_run.state_type == StateType.CANCELLING:
        return Cancelled(message=GONE)
    return Crashed(message=GONE)


def _told(flow_run: FlowRun, run: Run, became: State[Any]) -> str:
    said = (
        f"the server took run {run.info.run_id} for {flow_run.state_name}, and no process drives "
        f"it; its flow run is {became.name} now"
    )
    if became.type != StateType.CRASHED:
        return said
    return (
        f"{said}. `mortal automate` has such runs come back; by hand: "
        f"prefect flow-run retry {flow_run.id}"
    )
