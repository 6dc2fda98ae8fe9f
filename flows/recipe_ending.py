"""How a recipe ends."""

import asyncio
from collections.abc import Mapping

from prefect.exceptions import Pause

from mortal_flows.deployed import is_of_the_machine
from mortal_flows.gate_stage import Asking
from mortal_steps.errors import MortalError, RecipeError, RunStoppedError, WorkerLostError
from mortal_steps.recipes.recipe import Found, Recipe
from mortal_steps.recipes.report.view import then
from mortal_steps.recipes.standings import Standings


def reached(
    recipe: Recipe,
    standings: Standings,
    found: Mapping[str, Found],
    failed: Mapping[str, Exception],
    asking: Mapping[str, Asking],
    *,
    resume: str,
) -> str:
    """Record that a recipe has ended by itself, and return what was reached. Raises the error of a
    stage that failed. `resume` is the command that goes on with the recipe."""
    if failed:
        error = _failure(recipe, failed, resume)
        stopped = isinstance(error, RunStoppedError)
        standings.recipe("stopped" if stopped else "failed", str(error))
        raise error from next(iter(failed.values()))
    if asking:
        name, first = next(iter(asking.items()))
        return f"stage {name} waits for a decision: {then(first.how, first.asked_by, resume)}"
    said = standings.made_in_words()
    if refused := [name for name, each in found.items() if each.state == "refused"]:
        said += f"; {', '.join(refused)} did not begin: {found[refused[0]].why}"
    standings.recipe("completed")
    return said


def _failure(recipe: Recipe, failed: Mapping[str, Exception], resume: str) -> Exception:
    """Return the error that a recipe ends with, by those of its stages. A lost worker, an outage or
    the disk counts before others: the recipe gets further when it is begun again."""
    of_machine = [name for name, error in failed.items() if is_of_the_machine(error)]
    name = (of_machine or list(failed))[0]
    error = failed[name]
    if isinstance(error, RunStoppedError):
        return RunStoppedError(f"{error}; `{resume}` goes on")
    after = [other for other in recipe.stages if name in recipe.after(other)]
    behind = f"; {', '.join(after)} did not begin" if after else ""
    said = (
        f"stage {name} failed{behind}: {error}\nOnce that is mended, `{resume}` goes on; what is "
        "complete is not made again"
    )
    if isinstance(error, MortalError) and len(error.args) == 1:
        return type(error)(said)
    return WorkerLostError(said) if is_of_the_machine(error) else RecipeError(said)


def note_end(standings: Standings, error: BaseException | None) -> None:
    """Record how a recipe has ended, unless that is recorded, or it is suspended."""
    status = standings.record.status
    if isinstance(error, Pause) or status not in ("running", "waiting"):
        return
    if status == "waiting" and error is None:
        return
    stopped = error is None or isinstance(error, RunStoppedError | asyncio.CancelledError)
    said = None if error is None or stopped else str(error)
    standings.recipe("stopped" if stopped else "failed", said)
