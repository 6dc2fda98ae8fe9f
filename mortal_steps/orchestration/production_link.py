"""`models/NAME/production`: a link to the model that is in use, which promotion moves.

A run that begins with this link follows it once, and stays with the model that it began with even
if the link moves. So every night begins with the model in production, and while it trains, the gate
may put the model of the night before into production.
"""

from __future__ import annotations

import os
from pathlib import Path

from mortal_steps.config import RunConfig
from mortal_steps.errors import ModelError
from mortal_steps.registry.registry import PRODUCTION
from mortal_steps.registry.versions import FOLDER


def follow_link(config: RunConfig) -> RunConfig:
    """The configuration of a new run, with the link replaced by the version that it points to now.

    Other links are left as they are: a run that continues could not be told from one with another
    model. Raises `ModelError` if no model is in production.
    """
    link = Path(config.model.name_or_path)
    if not _is_production(link):
        _check_promoted(link)
        return config
    return _with_model(config, Path(os.path.normpath(link.parent / link.readlink())))


def follow_as_before(config: RunConfig, begun: RunConfig) -> RunConfig:
    """The configuration of a run that continues, with the version that the link pointed to when the
    run was `begun`, if that version still exists."""
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
