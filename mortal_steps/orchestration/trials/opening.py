"""From a configuration to the workers of what is no run: checks and trials."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

from mortal_steps.compute.base import Role, WorkerSpec
from mortal_steps.compute.interpreters import check_interpreters
from mortal_steps.compute.roles import worker_specs
from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.checking.checks import check_engine, check_model
from mortal_steps.orchestration.checking.resolve_defaults import resolve_defaults
from mortal_steps.places.base import place_of
from mortal_steps.plan.run_config import RunConfig


def passing_workers(config: RunConfig) -> Mapping[Role, WorkerSpec]:
    """Return workers without a run directory or a model, which are only good for checks; with
    `in_folder`, for a trial."""
    nowhere = Path(os.devnull)
    return worker_specs(config, run_dir=nowhere, fingerprint="", model_path="", num_steps=1)


def in_folder(worker: WorkerSpec, folder: Path, **settings: object) -> WorkerSpec:
    """Return the worker with `folder` as its run directory, and these of its settings changed."""
    return dataclasses.replace(worker, kwargs={**worker.kwargs, "run_dir": str(folder), **settings})


def settings_of_trial(config: RunConfig) -> RunConfig:
    """Return the configuration with which this machine samples as such a run would, on the run's
    GPUs. Raises `ConfigError` for workers on Modal, and what the checks before a run raise."""
    if not config.compute.place.shares_files:
        raise ConfigError(
            "compute.backend = 'modal': this samples on this machine; on Modal, `modal run -m "
            "mortal_deployments.modal_app::test_rollout_fn` does. Or set compute.backend = 'local'"
        )
    config = resolve_defaults(config)
    check_model(config.model, config.max_tokens)
    check_interpreters(config.compute, config.rollout, ("actor", "rollout"))
    check_engine(config.rollout, config.evaluation.temperature)
    return place_of(config).placed()
