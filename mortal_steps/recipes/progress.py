"""Tells how far the stages of a recipe are that are runs."""

from collections.abc import Callable, Mapping

from mortal_steps.errors import MortalError
from mortal_steps.recipes.recipe import Recipe
from mortal_steps.recipes.stages import Job, RunStage
from mortal_steps.report.status import RunStatus, status_of
from mortal_steps.report.units import duration
from mortal_steps.runs.run import find_run

PARTS = 10
"""Lines that a stage gets, about."""


class Progress:
    """Says a line of a stage whenever a tenth of it is done."""

    def __init__(self, recipe: Recipe, say: Callable[[str], None]) -> None:
        self._recipe, self._say = recipe, say
        self._told: dict[str, int] = {}

    def tell(self, running: Mapping[str, Job | None]) -> None:
        """Look at the stages that run."""
        for name, job in running.items():
            if job is not None and isinstance(self._recipe.stages[name], RunStage):
                self._look(name, job)

    def _look(self, name: str, job: Job) -> None:
        try:
            status = status_of(find_run(job.runs_dir, job.id))
        except MortalError:  # it has not begun yet
            return
        part = status.step * PARTS // max(1, status.max_steps)
        if status.step and part > self._told.get(name, 0):
            self._told[name] = part
            self._say(f"{name:<10} {in_words(status)}")


def in_words(status: RunStatus) -> str:
    """Return where a run is, such as `step 40 of 90, loss 0.61, held out 0.72, 12 s left`."""
    found = [f"step {status.step} of {status.max_steps}"]
    for label, value in (
        ("reward", status.reward),
        ("loss", status.loss),
        ("held out", status.held_out),
        ("held-out loss", status.held_out_loss),
    ):
        if value is not None:
            found.append(f"{label} {value:.3f}")
    if status.eta_s is not None and status.step < status.max_steps:
        found.append(f"{duration(status.eta_s)} left")
    return ", ".join(found)
