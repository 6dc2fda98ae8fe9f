"""`models/NAME/production`, a link that says which model is in use, and moves.

A run that begins with it follows it once, and goes on with the model that it began with, also when
the link has moved meanwhile: every night begins with what is in production, and the gate may put
the night before to use while it trains.
"""

from __future__ import annotations

import os
from pathlib import Path

from mortal_steps.config import RunConfig
from mortal_steps.errors import ModelError
from mortal_steps.registry.registry import PRODUCTION
from mortal_steps.registry.versions import FOLDER


def follow_link(config: RunConfig) -> RunConfig:
    """The configuration of a new run, with the version that is in production now.

    Any other link is left as it is: a run that goes on could not be told from one with another
    model. Raises `ModelError` where no model is in production.
    """
    link = Path(config.model.name_or_path)
    if not _is_production(link):
        _check_promoted(link)
        return config
    return _with_model(config, Path(os.path.normpath(link.parent / link.readlink())))


def follow_as_before(config: RunConfig, begun: RunConfig) -> RunConfig:
    """The configuration of a run that goes on: with the version that was in production when it was
    `begun`, wherever the link leads by now, if it is there at all."""
    link, before = Path(config.model.name_or_path), Path(begun.model.name_or_path)
    versions = Path(os.path.normpath(link.parent / FOLDER))
    if link.name != PRODUCTION or before.parent != versions:
        return config
    return _with_model(config, before)


def _is_production(link: Path) -> bool:
    return link.name == PRODUCTION and link.is_symlink()


def _check_promoted(link: Path) -> None:
    """Raise `ModelError` for `models/NAME/production` that is not there."""
    if link.name == PRODUCTION and len(link.parts) > len(("owner", "name")) and not link.exists():
        raise ModelError(
            f"model.name_or_path: no model is in production as {link.parent.name}, for there is no "
            f"{link.absolute()}; train the first one from another model and put it to use with "
            f"`mortal promote RUN --name {link.parent.name}`"
        )


def _with_model(config: RunConfig, folder: Path) -> RunConfig:
    model = config.model.model_copy(update={"name_or_path": str(folder)})
    return config.model_copy(update={"model": model})
