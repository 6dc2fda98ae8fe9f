"""Pictures of a dataset, which TRL gives to a model that takes them."""

from __future__ import annotations

from pathlib import Path

from mortal_steps.config import RunConfig
from mortal_steps.data.values import TEXT_ALONE
from mortal_steps.errors import ConfigError
from mortal_steps.models.hub import is_hub_model
from mortal_steps.models.local_folder import takes_pictures
from mortal_steps.types import Problem

COLUMNS = ("image", "images")
"""Where TRL looks for them."""


def check_pictures(config: RunConfig, problem: Problem) -> None:
    """Raise `ConfigError` if training would leave out the pictures that stock TRL trains with. A
    model on the hub, of which nothing is known here, may take them."""
    model = config.model
    if model.new is not None:
        return
    for name in COLUMNS:
        if name in problem.columns and (
            is_hub_model(model) or takes_pictures(Path(model.name_or_path) / "config.json")
        ):
            raise ConfigError(
                f"data.source = {config.data.source!r} has a column {name!r}, in which TRL looks "
                f"for pictures, and {TEXT_ALONE}; rename or remove the column to train without it"
            )
