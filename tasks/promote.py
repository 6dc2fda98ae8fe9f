"""bring_in, judge, decide: what the gate does before a model is put to use."""

from prefect import task

from mortal_steps.promotion.comparison import Comparison, Verdict
from mortal_steps.promotion.gate import Gate
from mortal_steps.promotion.judged_folder import Judgement
from mortal_steps.registry.registry import Decision, ModelVersion
from mortal_tasks.durability import DURABLE, tag_stage


@task(name="bring_in", task_run_name="bring_in", **DURABLE)
async def bring_in(gate: Gate) -> ModelVersion:
    """Link the candidate into the registry, unless it is already there whole."""
    tag_stage("bring_in")
    return gate.bring_in()


@task(name="judge", task_run_name="judge/{version.run_id}", **DURABLE)
async def judge(gate: Gate, version: ModelVersion) -> Judgement:
    """Score a model on the held-out problems, unless it was scored before."""
    tag_stage("judge")
    return await gate.judge(version)


@task(name="decide", task_run_name="decide", **DURABLE)
async def decide(
    gate: Gate, comparison: Comparison, verdict: Verdict, by: str, request: str
) -> Decision:
    """Record the decision and move the `production` link; a request is decided only once."""
    tag_stage("decide")
    return gate.decide(comparison, verdict, by=by, request=request)
