"""The gate before a model is put to use, as a Prefect flow.

    bring_in -> judge candidate, judge incumbent -> compare -> approval -> decide

Approval is a threshold's or a person's. To wait for a person the flow run is suspended: its process
ends, and nothing is held. Resumed, retried or crashed, it begins at the top again, and each of its
steps is answered by what it has committed.
"""

import contextlib
import itertools
from functools import partial
from pathlib import Path
from typing import Any, Literal

from prefect import State, flow
from prefect.flow_runs import asuspend_flow_run
from prefect.input import RunInput
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Completed
from pydantic import Field, ValidationError

from mortal_flows.deployed import state_for
from mortal_flows.project_folder import enter_project_folder
from mortal_flows.settings import RunId
from mortal_flows.terminal import stand_alone
from mortal_steps.errors import MortalError, ProductionMovedError
from mortal_steps.promotion.comparison import (
    Comparison,
    Verdict,
    by_threshold,
    comparison_page,
    comparison_table,
    comparison_text,
)
from mortal_steps.promotion.gate import Gate
from mortal_steps.registry.registry import Decision, ModelVersion, Registry
from mortal_steps.runs.run import find_run
from mortal_steps.runs.trust import check_trusted
from mortal_tasks.promote import bring_in, decide, judge
from mortal_tasks.reporter import PageArtifact
from mortal_tasks.server_watch import best_effort

HOW_TO_APPROVE = (
    "**Waits for approval.** Press Resume, in the menu ⋮ on the page of this flow run, and say "
    "`promote` or `refuse`. Nothing runs meanwhile."
)


class Approval(RunInput):
    """A person's answer to a comparison of two models."""

    decision: Literal["promote", "refuse"] = Field(
        description="`promote` puts the model in production; `refuse` leaves the one that is there."
    )
    by: str = Field(min_length=1, description="Your name, for the history.")
    why: str = Field("", description="A reason, for the history.")


def flow_run_name() -> str:
    """Return `promote/<run id>`."""
    return f"promote/{flow_run.parameters['run_id'].strip()}"


@flow(name="promote", flow_run_name=flow_run_name, persist_result=False)
async def promote(
    run_id: RunId,
    name: str | None = None,
    approval: Literal["person", "threshold"] = "person",
    min_gain: float = 0.0,
    overrides: list[str] | None = None,
    runs_dir: str = "runs",
    models_dir: str = "models",
) -> State[Any]:
    """Compare a run's model with the one in production, and put it in its place.

    Ends Completed, with the `Decision`, and says in a line what was decided. If another model comes
    into use meanwhile, it is compared with that one. Raises the `MortalError` that kept it from a
    comparison; but a deployment's run ends Crashed if a lost worker, an outage or a full disk
    has ended it.

    Args:
        run_id: The run, which has finished.
        name: Name to promote its model to. Default: `name` in its configuration.
        approval: `person` suspends the flow run until somebody resumes it with a decision;
            `threshold` decides by `min_gain`.
        min_gain: Promote the model if its reward on the held-out problems is shown to be higher by
            more than this: by the lower end of the 95 % interval of the gain on the same problems.
        overrides: Changes to how the models are compared, such as
            `evaluation.functions=["judges.py:strict"]`.
        runs_dir: Folder that holds the run.
        models_dir: Folder that holds the models in use; `models_dir/name/production` is loaded.
    """
    stand_alone()
    enter_project_folder()
    run = find_run(Path(runs_dir).absolute(), run_id)
    check_trusted(run)
    registry = Registry(Path(models_dir).absolute(), name or run.config.name)
    made = registry.answered(str(flow_run.id))
    if made is not None:
        registry.follow()
        return _ended(made, registry)
    gate = Gate(run, registry, overrides or (), request=str(flow_run.id))
    try:
        candidate = await bring_in(gate)
        while registry.production() != candidate:
            with contextlib.suppress(ProductionMovedError):  # compared anew then
                request = str(flow_run.id)
                if approval == "threshold":
                    decided = await decide_by_threshold(gate, candidate, min_gain, request)
                else:
                    decided = await ask_person(gate, candidate, request)
                return _ended(decided, registry)
    except (MortalError, OSError) as ended:
        return state_for(ended)
    return Completed(message=f"{candidate.id} is in production already")


async def decide_by_threshold(
    gate: Gate, candidate: ModelVersion, min_gain: float, request: str
) -> Decision:
    """Compare the candidate with the model in use, and decide by the gain; the same request is
    decided once. Raises `ProductionMovedError` if another model came into use meanwhile."""
    comparison = await gate.compare(candidate, partial(judge, gate))
    verdict = by_threshold(comparison, min_gain, gate.command)
    return await _decide(gate, comparison, verdict, f"threshold min_gain = {min_gain:g}", request)


async def ask_person(
    gate: Gate, candidate: ModelVersion, request: str, about: str = ""
) -> Decision:
    """Compare them, and suspend the flow run until a person has decided. `about` tells the question
    from others of this flow run. Raises as `decide_by_threshold`."""
    comparison, registry = await gate.compare(candidate, partial(judge, gate)), gate.registry
    page = PageArtifact(f"promotion-{registry.name}")
    await _show(page, comparison, registry, HOW_TO_APPROVE)
    verdict, by = await _asked(comparison, registry.name, about)
    return await _decide(gate, comparison, verdict, by, request)


async def _decide(
    gate: Gate, comparison: Comparison, verdict: Verdict, by: str, request: str
) -> Decision:
    decision = await decide(gate, comparison, verdict, by, request)
    outcome = f"**{decision.action.capitalize()}** by {decision.by}: {decision.why or 'no reason'}."
    page = PageArtifact(f"promotion-{gate.registry.name}")
    await _show(page, comparison, gate.registry, outcome)
    return decision


async def _show(
    page: PageArtifact, comparison: Comparison, registry: Registry, outcome: str
) -> None:
    run_id = comparison.candidate.run_id
    text = comparison_page(comparison, registry.name, outcome)
    showing = page.put(text, f"{run_id} for {registry.name}")
    await best_effort(showing, "the comparison is not shown")


async def _asked(comparison: Comparison, name: str, about: str) -> tuple[Verdict, str]:
    """Return a person's answer and that person's name; the flow run is suspended until somebody
    answers. The question is about this comparison. If the flow run is resumed without an answer, or
    after another model has come into use, the question is asked anew."""
    before = comparison.incumbent.id if comparison.incumbent else "nothing"
    asking = Approval.with_initial_data(
        description=f"Put this model in production as {name}?\n\n{comparison_table(comparison)}\n\n"
        f"{comparison_text(comparison)}"
    )
    for attempt in itertools.count(1):
        key = f"{about}{comparison.candidate.id}-against-{before}-{attempt}"
        try:
            said = await asuspend_flow_run(wait_for_input=asking, key=key)
        except ValidationError:
            get_run_logger().warning("resumed without an answer; asking again")
            continue
        return Verdict(promote=said.decision == "promote", why=said.why), said.by
    raise AssertionError("there is always another attempt")


def _ended(made: Decision, registry: Registry) -> State[Any]:
    """Return the flow run's last state, whose message says what was decided."""
    said = f"{made.action} {made.version.id} by {made.by}" + (f": {made.why}" if made.why else "")
    link = f"; in production: {registry.link}" if made.action == "promoted" else ""
    return Completed(message=f"{said}{link}", data=made)
