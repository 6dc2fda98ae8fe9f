"""A recipe as a Prefect flow: stages that begin with what other stages have produced.

    check all -> begin what can begin -> wait for one to end -> begin what can begin now -> ...

Each stage is a subflow in a process of its own (stage_process.py): a run is the flow `grpo_train`,
anything else that is made is `make_stage`. Gates are passed here, because a flow run that waits for
a person is suspended, which a subflow cannot be. Starting, retrying and resuming are the same: look
which stages are complete, and go on.
"""

from pathlib import Path
from typing import Any

from prefect import State, flow, tags
from prefect.exceptions import Abort
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed

from mortal_flows.deployed import (
    PATIENCE_S,
    drives,
    is_deployed,
    state_for,
    too_late,
    wait_for_holder,
)
from mortal_flows.project_folder import enter_project_folder
from mortal_flows.recipe_driver import RecipeDriver
from mortal_flows.terminal import stand_alone
from mortal_steps.errors import ConfigError, MortalError, RunStoppedError
from mortal_steps.recipes.file import RecipeConfig, override_recipe, read_recipe
from mortal_steps.recipes.recipe import Recipe
from mortal_steps.recipes.recipe import only as only_these
from mortal_steps.recipes.record import RecipeFolder
from mortal_steps.recipes.same_name import note_file
from mortal_tasks.recipe import mark_what_was_left

NAME = "recipe"


def flow_run_name() -> str:
    """Return `recipe/<name>`."""
    enter_project_folder()
    parameters = flow_run.parameters
    config, file = parameters.get("config"), parameters.get("recipe_file")
    if isinstance(config, RecipeConfig):
        return f"{NAME}/{config.name}"
    try:
        return f"{NAME}/{read_recipe(Path(str(file)), parameters.get('overrides') or ()).name}"
    except MortalError:
        return f"{NAME}/{flow_run.id}"


@flow(name=NAME, flow_run_name=flow_run_name, persist_result=False)
async def recipe(
    recipe_file: str | None = None,
    overrides: list[str] | None = None,
    only: list[str] | None = None,
    skip_after_min: float | None = None,
    config: RecipeConfig | None = None,
    goes_on: bool = False,
) -> State[Any]:
    """Make every stage of a recipe that is not complete, each after those that it begins with.

    A stage whose configuration, data and inputs are as they were is not made again: a scheduled
    night on which nothing has changed trains nothing. A stage that fails ends those that come after
    it; the others go on. Ends Completed, or Failed; Crashed in a deployment if a lost worker, an
    outage or a full disk was the reason; Cancelled if it was stopped. Run again, in whatever way,
    it goes on where it was.

    Args:
        recipe_file: A TOML file with a table `[stages]`. A relative path starts in the project's
            folder.
        overrides: Settings to change in it, each as `key=value`, such as
            `stages.grpo.training.max_steps=20`.
        only: Make only these stages, and those that they begin with.
        skip_after_min: Skip a scheduled run that would begin more than so many minutes late. None:
            it begins however late it is.
        config: The recipe itself, where there is no `recipe_file`.
        goes_on: Go on with the last beginning of the recipe, if that has not come to its end:
            functions with `cache = false` that it has called are not called again. A flow run that
            is retried or restarted always does.
    """
    stand_alone()
    enter_project_folder()
    if (skipped := too_late(skip_after_min)) is not None:
        return skipped
    if recipe_file is not None:
        config = read_recipe(Path(recipe_file), overrides or ())
    elif config is not None:
        config = override_recipe(config, overrides or ())
    else:
        raise ConfigError("this flow run has no recipe; set `recipe_file`")
    try:
        whole = Recipe(config)
        chosen = only_these(whole, only) if only else whole
        folder = RecipeFolder(chosen.runs_dir, chosen.name)
        if is_deployed() and (elsewhere := await wait_for_other_driver(folder)) is not None:
            return elsewhere
        if recipe_file is not None:
            note_file(config, Path(recipe_file))
        return await _drive(chosen, tuple(only or ()), goes_on)
    except RunStoppedError as stopped:
        return Cancelled(message=str(stopped))
    except (MortalError, OSError) as ended:
        return state_for(ended)


async def _drive(chosen: Recipe, names: tuple[str, ...], goes_on: bool) -> State[Any]:
    deployed = is_deployed()
    with RecipeDriver(chosen, names, deployed=deployed, goes_on=goes_on) as driver:
        await mark_what_was_left(driver.tags)
        with tags(*driver.tags):
            outcome = await driver.drive()
    return Completed(message=outcome)


async def wait_for_other_driver(folder: RecipeFolder) -> State[Any] | None:
    """Wait for another process that drives the recipe to end, or to be known as dead; return the
    last state of this flow run if it lives on. Raises `Abort` if it drives this very flow run."""
    say = get_run_logger().warning
    if await wait_for_holder(folder.store, PATIENCE_S, say):
        return None
    record = folder.read()
    if drives(record.ui_url if record else None, flow_run.id):
        say("it is alive; this flow run is left to it")
        raise Abort
    elsewhere = f"skipped: recipe {folder.name} is in use by another process, which goes on with it"
    say(elsewhere)
    return Cancelled(message=elsewhere)
