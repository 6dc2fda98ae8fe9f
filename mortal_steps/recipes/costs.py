"""What the stages of a recipe may still cost."""

from collections.abc import Sequence

from mortal_steps.errors import ConfigError
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.recipes.stages import Job
from mortal_steps.runs.costs import add_up


def spent(jobs: Sequence[Job]) -> float:
    """Return the dollars that the runs among these jobs have cost, in all attempts."""
    costs = [add_up(job.runs_dir / job.id) for job in jobs]
    return sum(each.total for each in costs if each is not None)


def within_budget(config: RunConfig, limit: float | None, jobs: Sequence[Job]) -> RunConfig:
    """Return the configuration of a stage, with what is left of the recipe's budget as the most
    that it may cost. Raises `ConfigError` where nothing is left."""
    if limit is None:
        return config
    left = limit - spent(jobs)
    if left <= 0:
        raise ConfigError(
            f"limits.max_cost = {limit:g}: the stages have cost {spent(jobs):.2f} dollars; "
            "raise it to go on"
        )
    modal = config.compute.modal
    most = min(left, modal.max_cost or left)
    modal = modal.model_copy(update={"max_cost": most})
    compute = config.compute.model_copy(update={"modal": modal})
    return config.model_copy(update={"compute": compute})
