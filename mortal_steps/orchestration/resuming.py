"""Continues an existing run with its own configuration, whoever asks for that."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from mortal_steps.config import RunConfig
from mortal_steps.config.loader import override_config
from mortal_steps.errors import ConfigError, RunNotFoundError
from mortal_steps.orchestration.open_run import differences
from mortal_steps.runs.run import find_run
from mortal_steps.runs.trust import check_trusted
from mortal_steps.store import RunStore


def resume_config(
    runs_dir: Path,
    run_id: str,
    overrides: Sequence[str] = (),
    *,
    volume: str | None = None,
    trust: bool = False,
) -> RunConfig:
    """The configuration with which an existing run continues; pass it to `open_run`.

    The folder in which the run began becomes the working directory of this process, because
    relative paths of the configuration start there. A run on a Modal `volume` is first downloaded
    to `runs_dir`. `overrides` change, for this time, settings that affect no number of the run.

    Raises `RunNotFoundError`, which names the existing runs, `ConfigError` for overrides that would
    change what the run computes, and, unless `trust`, what `check_trusted` raises.
    """
    if volume is not None:
        _bring(volume, run_id, runs_dir)
    run = find_run(runs_dir, run_id)
    if not trust:
        check_trusted(run)
    place = {"run_id": run_id, "runs_dir": str(runs_dir.absolute())}
    config = _changed(run.config.model_copy(update=place), overrides)
    os.chdir(run.working_dir())
    return config if volume is None else _on_volume(config, volume)


def _changed(config: RunConfig, overrides: Sequence[str]) -> RunConfig:
    """The configuration with the overrides. Raises `ConfigError` for overrides that make it another
    run."""
    changed = override_config(config, overrides)
    if (changed.run_id, changed.runs_dir) != (config.run_id, config.runs_dir):
        raise ConfigError(
            f"overrides {list(overrides)} name another run than {config.run_id} in "
            f"{config.runs_dir}; leave run_id and runs_dir out of them"
        )
    if refused := list(differences(config.identity(), changed.identity())):
        raise ConfigError(
            f"run {config.run_id} would compute something else ({', '.join(refused)}); leave that "
            f"out, or let `mortal fork {config.run_id} --set KEY=VALUE` train a new run from its "
            "checkpoint"
        )
    return changed


def _bring(volume: str, run_id: str, runs_dir: Path) -> None:
    # Imported where used: a local run needs no client of Modal's.
    from mortal_steps.compute.modal.retry import run_in_thread
    from mortal_steps.compute.modal.volume import RunsVolume
    from mortal_steps.compute.modal.volume_runs import download_run

    if not run_in_thread(download_run(RunsVolume(volume), RunStore(runs_dir / run_id))):
        raise RunNotFoundError(f"no run {run_id!r} on the Volume {volume}")


def _on_volume(config: RunConfig, volume: str) -> RunConfig:
    """The configuration with the Volume on which the run's files are. A run that began locally
    continues there."""
    modal = config.compute.modal.model_copy(update={"volume": volume})
    compute = config.compute.model_copy(update={"backend": "modal", "modal": modal})
    return config.model_copy(update={"compute": compute})
