"""Finds the runs from which the models in use come, so that `mortal gc` keeps them."""

from __future__ import annotations

from pathlib import Path

from mortal_steps.registry.registry import list_names


def runs_in_use(models_dir: Path) -> set[str]:
    """Ids of the runs whose models are in production, and of the runs that these are forks of.

    Empty where there is no such folder. Raises `CorruptFileError` for a damaged history: nothing
    is known then of what is in use.
    """
    used = (registry.production() for registry in list_names(models_dir))
    return {run for version in used if version is not None for run in version.runs}
