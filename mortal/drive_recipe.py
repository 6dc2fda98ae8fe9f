"""Drives a recipe from the command line: start a server, run the flow, print what was reached."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from mortal.driver import EVENTS_TIMEOUT_S, QUIET_PREFECT, PrefectStart, calm_console
from mortal.terminal.output import checking, say
from mortal_steps.errors import ServerError
from mortal_steps.recipes.checking import check_stages
from mortal_steps.recipes.file import RecipeConfig
from mortal_steps.recipes.recipe import Found, Recipe
from mortal_steps.recipes.recipe import only as only_these
from mortal_steps.recipes.record import RecipeFolder, find_recipe, working_dir_of
from mortal_steps.recipes.same_name import check_name, note_file
from mortal_steps.report.summary import PAGE
from mortal_steps.runs.argument import run_argument


def drive_recipe(
    config: RecipeConfig,
    only: Sequence[str] = (),
    *,
    file: Path | None = None,
    goes_on: bool = False,
) -> None:
    """Make all stages that are not complete; with `goes_on`, as a part of the last beginning.
    `file` is the one that the recipe is written in. Raises the `MortalError` that ended a stage."""
    for name, value in QUIET_PREFECT.items():
        os.environ.setdefault(name, value)
    chosen = Recipe(config)
    if only:
        only_these(chosen, only)
    if file is not None:
        check_name(config, file)
    with PrefectStart() as prefect:
        prefect.begin()
        checking("waiting for the Prefect server")
        server = prefect.answering()
        say(f"Prefect UI: {server.ui_url}")
        if file is not None:
            note_file(config, file)
        outcome = _run_flow(config, list(only), server.api_url, goes_on=goes_on)
    say(outcome)
    say(f"report: {RecipeFolder(chosen.runs_dir, chosen.name).store.path(PAGE)}")


def resume_recipe(runs_dir: Path, name: str) -> None:
    """Go on with a recipe as it was last begun. Raises `RunNotFoundError`."""
    record = find_recipe(runs_dir, name).read()
    assert record is not None
    runs = runs_dir.absolute()
    os.chdir(working_dir_of(record))
    config = record.recipe()
    if Path(config.runs_dir).absolute() != runs:  # the folder was moved since
        config = config.model_copy(update={"runs_dir": str(runs)})
    drive_recipe(config, record.only, goes_on=True)


def rehearse_recipe(config: RecipeConfig, only: Sequence[str], file: Path) -> None:
    """Check all stages of a recipe in a file, and print what there is to do."""
    check_name(config, file)
    chosen = Recipe(config)
    if only:
        chosen = only_these(chosen, only)
    found = chosen.look()
    check_stages(chosen, found, lambda name, line: checking(f"{name}: {line}"))
    for name, each in found.items():
        say(f"{name:<12} {_plan_in_words(each)}")


def _plan_in_words(found: Found) -> str:
    if found.state == "complete" and found.product is not None and found.job is not None:
        return f"complete: {found.job.id}: {found.product.headline}"
    if found.state == "ready" and found.job is not None:
        return f"to do: {found.job.id}"
    return f"to do {found.why}" if found.state == "waits" else f"does not begin: {found.why}"


def _run_flow(config: RecipeConfig, only: list[str], server: str, *, goes_on: bool) -> str:
    """Run the flow here; return what was reached. Raises what has ended it."""
    # Prefect reads its settings when it is imported.
    from prefect.client.schemas.objects import State
    from prefect.exceptions import ObjectNotFound
    from prefect.logging.handlers import APILogHandler

    from mortal_flows.recipe import recipe
    from mortal_tasks.prefect_patches import drop_events
    from mortal_tasks.server_watch import is_unreached

    async def run_to_its_state() -> State[Any]:
        return await recipe(config=config, only=only, goes_on=goes_on, return_state=True)

    calm_console()
    try:
        state = asyncio.run(run_to_its_state())
    except asyncio.CancelledError:  # told twice to stop, it did so at once
        raise KeyboardInterrupt from None
    except (httpx.HTTPError, ObjectNotFound, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not is_unreached(error):
            raise
        raise ServerError(
            f"the Prefect server at {server} went away ({error}); once it is back, `mortal resume "
            f"{run_argument(Path(config.runs_dir) / config.name)}` goes on"
        ) from error
    finally:
        APILogHandler().flush()
        drop_events(after_s=EVENTS_TIMEOUT_S)
    if state.is_cancelled() or state.is_crashed():
        say(state.message or "stopped")
        raise KeyboardInterrupt
    state.result()
    return str(state.message)
