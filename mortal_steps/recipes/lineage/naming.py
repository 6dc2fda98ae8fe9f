"""The names that people have for a model: a folder, a run, a stage of a recipe, a name in use."""

from pathlib import Path

from mortal_steps.errors import RunNotFoundError
from mortal_steps.recipes.lineage.ancestors import maker_of
from mortal_steps.recipes.record import RecipeRecord, find_recipe, is_recipe_name, list_recipes
from mortal_steps.recipes.stages import SHORT
from mortal_steps.registry.registry import Registry, list_names
from mortal_steps.runs.argument import RECIPES, run_argument
from mortal_steps.store.identity import IDENTITY_FILE


def folders_named(name: str, runs_dir: Path, models_dir: Path) -> list[Path]:
    """Return the folder of the run, product or version in use that is meant; of a recipe, those of
    its last stages. Raises `RunNotFoundError`."""
    recipe, slash, stage = name.partition("/")
    if slash and stage and is_recipe_name(runs_dir, recipe) and not Path(name).exists():
        return [_of_stage(runs_dir, recipe, stage)]
    if not slash and (runs_dir / name / IDENTITY_FILE).exists():
        return [runs_dir / name]
    names = {registry.name: registry for registry in list_names(models_dir)}
    if name in names and (used := names[name].production()) is not None:
        return [Registry(models_dir, name).store.path(used.path)]
    if not slash and is_recipe_name(runs_dir, name):
        return _ends_of(runs_dir, name)
    path = Path(name).expanduser()
    if path.exists() and (made := maker_of(path)) is not None:
        return [made]
    if path.exists():
        raise RunNotFoundError(
            f"{name}: it is in no run directory, and no record says what made it; name the folder "
            "that the run has it in, or the run"
        )
    known = dict.fromkeys([*names, *(each.name for each in list_recipes(runs_dir))])
    raise RunNotFoundError(
        f"{name!r} is no folder, no run in {runs_dir}, no recipe, no RECIPE/STAGE and no model in "
        f"use in {models_dir} (recipes and models there: {', '.join(known) or 'none'})"
    )


def folders_of_recipe(runs_dir: Path, record: RecipeRecord) -> dict[str, Path]:
    """Return the folder of each complete stage by its name."""
    return {
        name: folder_of_job(runs_dir, record.name, name, stage.job_id)
        for name, stage in record.stages.items()
        if stage.standing == "complete" and stage.job_id is not None
    }


def folder_of_job(runs_dir: Path, recipe: str, stage: str, job_id: str) -> Path:
    """Return the run directory of a job or, of a stage that is no run, its folder."""
    own = runs_dir / RECIPES / recipe / f"{stage}-{job_id[-SHORT:]}"
    return own if own.exists() else runs_dir / job_id


def _of_stage(runs_dir: Path, recipe: str, stage: str) -> Path:
    record = find_recipe(runs_dir, recipe).read()
    stages = record.stages if record else {}
    if stage not in stages:
        raise RunNotFoundError(f"recipe {recipe} has no stage {stage!r} ({', '.join(stages)})")
    job_id = stages[stage].job_id
    if job_id is None:
        raise RunNotFoundError(
            f"stage {stage} of recipe {recipe} has not begun: {stages[stage].headline}"
        )
    return folder_of_job(runs_dir, recipe, stage, job_id)


def _ends_of(runs_dir: Path, name: str) -> list[Path]:
    """Return the folders of the complete stages that no other complete one begins with."""
    record = find_recipe(runs_dir, name).read()
    assert record is not None
    folders = folders_of_recipe(runs_dir, record)
    before = {parent for stage in folders for parent in record.stages[stage].parents}
    ends = [folder for stage, folder in folders.items() if stage not in before]
    if not ends:
        raise RunNotFoundError(
            f"no stage of recipe {name} is complete; `mortal show {run_argument(runs_dir / name)}`"
        )
    return ends
