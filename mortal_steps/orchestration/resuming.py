"""Continues an existing run with its own configuration, whoever asks for that."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from mortal_steps.config import RunConfig
from mortal_steps.config.loader import override_config
from mortal_steps.errors import ConfigError, RunNotFoundError
from mortal_steps.orchestration.open_run import changes_between, download_run, in_words
from mortal_steps.runs.run import find_run
from mortal_steps.runs.trust import check_trusted


def resume_config(
    runs_dir: Path,
    run_id: str,
    overrides: Sequence[str] = (),
    *,
    volume: str | None = None,
    trust: bool = False,
) -> RunConfig:
    """Return the configuration with which an existing run continues; pass it to `open_run`.

    The folder in which the run began becomes the working directory of this process, because
    relative paths of the configuration start there. A run on a Modal `volume` is first downloaded
    to `runs_dir`. `overrides` change, for this time, settings that affect no number of the run.

    Raises `RunNotFoundError`, which names the existing runs, `ConfigError` for overrides that would
    change what the run computes, and, unless `trust`, what `check_trusted` raises.
    """
    if volume is not None and not download_run(volume, runs_dir / run_id):
        raise RunNotFoundError(f"no run {run_id!r} on the Volume {volume}")
    run = find_run(runs_dir, run_id)
    if not trust:
        check_trusted(run)
    place = {"run_id": run_id, "runs_dir": str(runs_dir.absolute())}
    config = _changed(run.config.model_copy(update=place), overrides)
    os.chdir(run.working_dir())
    return config if volume is None else _on_volume(config, volume)


def _changed(config: RunConfig, overrides: Sequence[str]) -> RunConfig:
    """Return the configuration with the overrides. Raises `ConfigError` for overrides that make it
    another run."""
    changed = override_config(config, overrides)
    if (changed.run_id, changed.runs_dir) != (config.run_id, config.runs_dir):
        raise ConfigError(
            f"overrides {list(overrides)} name another run than {config.run_id} in "
            f"{config.runs_dir}; leave run_id and runs_dir out of them"
        )
    if refused := in_words(changes_between(config, changed)):
        raise ConfigError(
            f"run {config.run_id} would compute something else ({', '.join(refused)}); leave that "
            f"out, or let `mortal fork {config.run_id} --set KEY=VALUE` train a new run from its "
            "checkpoint"
        )
    return changed


def _on_volume(config: RunConfig, volume: str) -> RunConfig:
    """Return the configuration with the Volume on which the run's files are. A run that began
    locally continues there."""
    modal = config.compute.modal.model_copy(update={"volume": volume})
    compute = config.compute.model_copy(update={"backend": "modal", "modal": modal})
    return config.model_copy(update={"compute": compute})
