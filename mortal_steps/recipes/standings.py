"""How the stages of a recipe stand while it is driven; written to its record at each change."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from mortal_steps.recipes.recipe import Found, Recipe
from mortal_steps.recipes.record import RecipeFolder, RecipeRecord, StageRecord, Status

OF_THIS_ATTEMPT = ("running", "failed", "stopped", "asks")
"""Standings that say more than a look at the stage does."""


class Standings:
    """The record of a recipe that this process drives."""

    def __init__(
        self,
        folder: RecipeFolder,
        recipe: Recipe,
        record: RecipeRecord,
        on_change: Callable[[RecipeRecord], None],
    ) -> None:
        """`on_change` is called with the record whenever it is written."""
        self._folder, self._recipe = folder, recipe
        self._on_change = on_change
        self.record = record

    def look(self, found: Mapping[str, Found]) -> None:
        """Record what a look at all stages has found."""
        stages = dict(self.record.stages)
        for name, each in found.items():
            known = stages.get(name) or StageRecord(
                kind=self._recipe.kinds[name], parents=tuple(self._recipe.parents(name))
            )
            if known.standing in OF_THIS_ATTEMPT:
                continue
            product = each.product
            main = product.outputs.get("") if product else None
            stages[name] = replace(
                known,
                standing=each.state,
                job_id=each.job.id if each.job else None,
                headline=product.headline if product else each.why,
                metrics=dict(product.metrics) if product else {},
                sha256=main.sha256 if main else None,
            )
        self._write(stages=stages)

    def begins(self, name: str) -> None:
        """Record that a stage begins."""
        self.stage(name, standing="running", began_at=time.time(), headline="")

    def ends(self, name: str, **changes: Any) -> None:
        """Record that a stage has ended, in whatever way."""
        self.stage(name, ended_at=time.time(), **changes)

    def stage(self, name: str, **changes: Any) -> None:
        """Record something of a stage."""
        stage = replace(self.record.stages[name], **changes)
        self._write(stages={**self.record.stages, name: stage})

    def recipe(self, status: Status, error: str | None = None) -> None:
        """Record something of the recipe as a whole."""
        self._write(status=status, error=error)

    def made_in_words(self) -> str:
        """Return what this attempt has made."""
        stages = self.record.stages
        made = [name for name, each in stages.items() if each.began_at is not None]
        if not made:
            return "nothing to do: every stage was complete"
        before = len(stages) - len(made)
        return f"made {', '.join(made)}" + (f"; complete before: {before}" if before else "")

    def _write(self, **changes: Any) -> None:
        self.record = replace(self.record, **changes)
        self._folder.write(self.record)
        self._on_change(self.record)
