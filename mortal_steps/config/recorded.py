"""The settings in a run's config.toml that are shown to people.

The file is resolved: it has every key that has a value. They were checked when the run began, and
are not checked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mortal_steps.config.toml_file import read_toml
from mortal_steps.errors import ConfigError

NEW_MODEL = "new"
"""Stands for a model that the run builds itself, as `[model.new]` says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedConfig:
    """The settings of a run that are shown."""

    base_model: str
    """A hub name, a folder, or `new` for a model of the run's own."""
    temperature: float
    """Of the completions that it trains on."""
    eval_temperature: float
    backend: str
    """Where its workers run: `local` or `modal`."""
    report_to: tuple[str, ...]
    """Its trackers."""


def read_recorded_config(path: Path) -> RecordedConfig:
    """The shown settings of a config.toml. Raises `ConfigError` for a file that is not TOML."""
    values = read_toml(path)
    try:
        return _shown(values)
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} is no configuration that a run was begun with: {error} is not there"
        ) from None


def _shown(values: Mapping[str, Any]) -> RecordedConfig:
    model = values["model"]
    return RecordedConfig(
        base_model=NEW_MODEL if "new" in model else model["name_or_path"],
        temperature=values["rollout"]["temperature"],
        eval_temperature=values["evaluation"]["temperature"],
        backend=values["compute"]["backend"],
        report_to=tuple(values["logging"]["report_to"]),
    )
