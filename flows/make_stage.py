"""A stage of a recipe that is no run, as a Prefect flow."""

from pathlib import Path
from typing import Any

from prefect import State, flow
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Completed

from mortal_flows.deployed import state_for
from mortal_steps.errors import MortalError
from mortal_steps.recipes.file import RecipeConfig
from mortal_steps.recipes.products import MadeStage, make_product
from mortal_steps.recipes.recipe import Recipe
from mortal_steps.recipes.stages import Job
from mortal_tasks.durability import without_tags

NAME = "make-stage"


def flow_run_name() -> str:
    """Such as `sample/<job id>`."""
    parameters = flow_run.parameters
    return f"{parameters['kind']}/{parameters['job'].id}"


@flow(name=NAME, flow_run_name=flow_run_name, persist_result=False, validate_parameters=False)
async def make_stage(kind: str, config: RecipeConfig, job: Job) -> State[Any]:
    """Make what a stage produces, unless it is there. `kind` is the stage's `type`."""
    stage = Recipe(config).stages[job.stage]
    assert isinstance(stage, MadeStage)
    try:
        with without_tags():
            product = await make_product(stage, job, get_run_logger().info)
    except (MortalError, OSError) as ended:
        return state_for(ended)
    return Completed(message=product.headline or f"made in {Path(job.folder)}")
