"""What the stages of a recipe may still cost."""

from pathlib import Path

from mortal_steps.config import ComputeConfig
from mortal_steps.errors import ConfigError
from mortal_steps.recipes.lineage.origin import find_origin
from mortal_steps.recipes.stages import Job
from mortal_steps.runs.costs import add_up


def spent(runs_dir: Path, recipe: str, *, without: str) -> float:
    """Return the dollars that the runs of a recipe's stages have cost in all attempts, those with
    other settings among them, but for the run `without`."""
    total = 0.0
    for folder in runs_dir.glob(f"{recipe}-*"):
        origin = find_origin(folder) if folder.name != without else None
        if origin is not None and origin.recipe == recipe:
            costs = add_up(folder)
            total += costs.total if costs is not None else 0.0
    return total


def within_budget(compute: ComputeConfig, limit: float | None, job: Job) -> ComputeConfig:
    """Return the `[compute]` of a stage, with what is left of the recipe's budget as the most that
    it may cost: its own earlier attempts count as they do for a run. Raises `ConfigError` where
    nothing is left."""
    if limit is None:
        return compute
    others = spent(job.runs_dir, job.recipe, without=job.id)
    left = limit - others
    if left <= 0:
        raise ConfigError(
            f"limits.max_cost = {limit:g}: the stages have cost {others:.2f} dollars; raise it to "
            "go on"
        )
    modal = compute.modal
    most = min(left, modal.max_cost or left)
    return compute.model_copy(update={"modal": modal.model_copy(update={"max_cost": most})})
