"""Pictures of a dataset, which TRL gives to a model that takes them."""

from __future__ import annotations

from pathlib import Path

from mortal_steps.config import RunConfig
from mortal_steps.errors import ConfigError
from mortal_steps.models.hub import is_hub_model
from mortal_steps.models.local_folder import takes_pictures
from mortal_steps.types import Problem

COLUMNS = ("image", "images")
"""Where TRL looks for them."""


def check_pictures(config: RunConfig, problem: Problem) -> None:
    """Raise `ConfigError` if training would leave out the pictures that stock TRL trains with. Of a
    model on the hub nothing is known here."""
    model = config.model
    if model.new is not None or is_hub_model(model):
        return
    for name in COLUMNS:
        if name in problem.columns and takes_pictures(Path(model.name_or_path) / "config.json"):
            raise ConfigError(
                f"data.source = {config.data.source!r} has a column {name!r}, and "
                f"{model.name_or_path} takes pictures, but MORTAL gives models text alone; rename "
                "or remove the column to train without them"
            )
