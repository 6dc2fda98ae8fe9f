"""How a recipe ends."""

import asyncio
from collections.abc import Mapping

from prefect.exceptions import Pause

from mortal_flows.deployed import is_of_the_machine
from mortal_steps.errors import MortalError, RecipeError, RunStoppedError, WorkerLostError
from mortal_steps.recipes.recipe import Recipe
from mortal_steps.recipes.standings import Standings


def failure(recipe: Recipe, failed: Mapping[str, Exception], resume: str) -> Exception:
    """Return the error that a recipe ends with, by those of its stages; `resume` is the command
    that goes on with it. A lost worker, an outage or the disk counts before others: the recipe gets
    further when it is begun again."""
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
