"""Checks all stages of a recipe before the first of them begins."""

from collections.abc import Callable, Mapping
from functools import partial

from mortal_steps.errors import MortalError
from mortal_steps.recipes.recipe import Found, Recipe


def check_stages(
    recipe: Recipe, found: Mapping[str, Found], say: Callable[[str, str], None]
) -> None:
    """Check every stage that has not begun, each with what it takes as far as that exists, and
    with stand-ins else. `say` is told the stage and what is being checked. Raises the
    `MortalError` that names the stage and what is wrong with it."""
    for name, each in found.items():
        if each.state in ("complete", "refused"):
            continue
        if each.job is not None and recipe.stages[name].has_begun(each.job):
            say(name, "has begun: it was checked then")
            continue
        say(name, "checking")
        try:
            recipe.stages[name].check(recipe.stand_ins(name, found), partial(say, name))
        except MortalError as error:
            if len(error.args) != 1 or str(error).startswith(f"stages.{name}"):
                raise
            raise type(error)(f"stage {name}: {error}") from error
