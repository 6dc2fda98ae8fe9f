"""Samples completions without training, with a rollout worker like that of a run."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mortal_steps.compute.base import Role, WorkerSpec
from mortal_steps.compute.local import call_once
from mortal_steps.compute.placement import placed_config
from mortal_steps.compute.roles import worker_specs
from mortal_steps.config import RunConfig
from mortal_steps.data.problem_files import dataset_fingerprint
from mortal_steps.data.problems import load_problems
from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.checks import check_engine, check_interpreters, check_model
from mortal_steps.orchestration.resolve_defaults import resolve_defaults
from mortal_steps.policy.starting_model.base_model import base_model_path
from mortal_steps.rollout.trial import SampledProblems
from mortal_steps.store import RunStore
from mortal_steps.types import Problem

WORKER = "mortal_steps.rollout.trial:FinishedModelWorker"
NUM_PROBLEMS = 2
"""Problems of the dataset that are sampled, unless the caller gives a number."""


def chosen_problems(config: RunConfig, prompts: Sequence[str], num_problems: int) -> list[Problem]:
    """Return the given prompts as problems; without prompts, the first problems of the dataset.
    Raises `DataError` as `read_problems` does."""
    if prompts:
        return [
            Problem(id=f"prompt-{number}", prompt=text) for number, text in enumerate(prompts, 1)
        ]
    no_others = {"eval_source": None, "eval_split": None, "eval_sets": dict[str, str]()}
    first = {"max_samples": num_problems, "eval_samples": 0}
    data = config.data.model_copy(update={**no_others, **first})
    return load_problems(data, config.seed)[0]


def try_rollout(
    config: RunConfig, problems: Sequence[Problem], num_generations: int
) -> SampledProblems:
    """Sample completions with the model that a run of this configuration would begin with.

    Raises `ConfigError` for a configuration whose workers are on Modal, and what the checks before
    a run and its rollout worker raise.
    """
    if config.compute.backend == "modal":
        raise ConfigError(
            "compute.backend = 'modal': this samples on this machine; on Modal, `modal run -m "
            "mortal_deployments.modal_app::test_rollout_fn` does. Or set compute.backend = 'local'"
        )
    config = resolve_defaults(config)
    check_model(config.model, config.max_tokens)
    check_interpreters(config.compute, config.rollout, ("actor", "rollout"))
    check_engine(config.rollout, config.evaluation.temperature)
    with tempfile.TemporaryDirectory(prefix="mortal-") as folder:
        store = RunStore(Path(folder))
        # What is built for the trial goes with it.
        path = base_model_path(
            config, dataset_fingerprint(problems), cache_dir=store.path("models").absolute()
        )
        if path != config.model.name_or_path:
            ref = store.write_record("problems.json", list(problems), list[Problem])
            call_once(trial_spec(config, store, path, "actor"), "build_base_model", problems=ref)
        spec = dataclasses.replace(trial_spec(config, store, path, "rollout"), factory=WORKER)
        sampled: SampledProblems = call_once(
            spec,
            "sample",
            problems=list(problems),
            num_generations=num_generations,
            sampling=config.sampling,
        )
    return sampled


def trial_spec(config: RunConfig, store: RunStore, model_path: str, role: Role) -> WorkerSpec:
    """Return a worker of the trial, on the GPU that a run would give it."""
    placed = placed_config(config)
    return worker_specs(
        placed, run_dir=store.root, fingerprint="", model_path=model_path, num_steps=1
    )[role]
