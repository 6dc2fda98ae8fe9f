"""Everything that can be found out about a configuration before anything is started.

Options that do not work yet, the runs directory, the model folder, the dataset and its columns, the
interpreters; then, each in a process of its own that ends with the check, the reward functions
(called once) and what TRL says of its options. This process imports no torch.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mortal_steps.compute.base import Role, WorkerSpec
from mortal_steps.compute.devices import check_devices
from mortal_steps.compute.local import call_once
from mortal_steps.compute.roles import worker_specs
from mortal_steps.config import RunConfig
from mortal_steps.data import load_problems
from mortal_steps.errors import ConfigError, ModelError, StoreError
from mortal_steps.hub import is_hub_model
from mortal_steps.types import Problem

logger = logging.getLogger(__name__)

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
REHEARSED_PROBLEMS = 2

Problems = tuple[list[Problem], list[Problem]]
"""Those to train on, and those held out."""


def check(config: RunConfig, problems: Problems | None = None) -> Problems:
    """Raise the `MortalError` that names what is wrong, or return the problems, read from their
    source unless they are known already."""
    refuse_what_does_not_work_yet(config)
    check_runs_dir(Path(config.runs_dir))
    check_model(config)
    check_modal(config)
    train, held_out = problems or load_problems(config.data, config.seed)
    if config.evaluation.eval_steps and not held_out:
        raise ConfigError(
            "evaluation.eval_steps is set but there are no held-out problems; set "
            "data.eval_samples, data.eval_split or data.eval_source"
        )
    check_rollout_interpreter(config)
    check_devices(config)
    check_rewards(config, train)
    check_training_options(config)
    return train, held_out


def refuse_what_does_not_work_yet(config: RunConfig) -> None:
    """Options that have a place in the configuration and no code behind them."""
    waiting = {
        "rollout.weight_sync_method = 'direct'": config.rollout.weight_sync_method == "direct",
        "rewards.functions = 'sandbox'": "sandbox" in config.rewards.functions,
        "logging.use_wandb": config.logging.use_wandb,
    }
    for option, wanted in waiting.items():
        if wanted:
            raise ConfigError(f"{option} does not work yet; leave it out")


def check_runs_dir(runs_dir: Path) -> None:
    """The folder of all runs can be made and written."""
    try:
        runs_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=runs_dir):
            pass
    except OSError as error:
        raise StoreError(
            f"runs_dir {runs_dir} is not writable: {error.strerror}; choose another --runs-dir"
        ) from None


def check_model(config: RunConfig) -> None:
    """A local model folder is whole, and prompts plus completions can fit its context."""
    model = config.model
    context = model.max_model_len
    if model.new:
        context = min(context, model.new.max_position_embeddings)
    elif not is_hub_model(model):
        context = min(context, _check_model_folder(Path(model.name_or_path)))
    if config.rollout.max_tokens >= context:
        raise ConfigError(
            f"rollout.max_tokens = {config.rollout.max_tokens} leaves no room for a prompt: the "
            f"context is {context} tokens (the smaller of model.max_model_len and the model's own)"
        )


def _check_model_folder(folder: Path) -> int:
    """The model's context length in tokens; raises `ModelError`."""
    if not folder.is_dir():
        raise ModelError(f"model.name_or_path: no such folder: {folder}")
    if not (folder / "config.json").exists():
        raise ModelError(f"model.name_or_path: {folder} has no config.json; it is no model folder")
    if not any((folder / name).exists() for name in TOKENIZER_FILES):
        raise ModelError(
            f"model.name_or_path: {folder} has no tokenizer (none of {', '.join(TOKENIZER_FILES)});"
            " save one there with tokenizer.save_pretrained"
        )
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return int(settings.get("max_position_embeddings", sys.maxsize))


def check_rollout_interpreter(config: RunConfig) -> None:
    """The interpreter of each role exists, and the rollout workers' one has their engine."""
    if config.compute.backend == "modal":
        return  # where images hold them
    for role in ("actor", "rollout", "reward"):
        python = getattr(config.compute.local, role).python
        if python and shutil.which(python) is None:
            raise ConfigError(f"compute.local.{role}.python: no such interpreter: {python}")
    if config.rollout.engine == "vllm":
        python = config.compute.local.rollout.python or sys.executable
        probe = "import importlib.util as u, sys; sys.exit(u.find_spec('vllm') is None)"
        if subprocess.run([python, "-c", probe], check=False).returncode:
            raise ConfigError(
                f"rollout.engine = 'vllm', but {python} has no vllm; name an interpreter that has "
                "it in compute.local.rollout.python (`make vllm-env` builds one), or use "
                "rollout.engine = 'transformers'"
            )


def check_modal(config: RunConfig) -> None:
    """Where workers are to run on Modal, they can."""
    if config.compute.backend == "modal":
        # Imported where used: a local run needs no client of Modal's.
        from mortal_steps.compute.modal.asking import run_apart
        from mortal_steps.compute.modal.deployed import check_deployed
        from mortal_steps.compute.modal.project import project_files

        if config.compute.modal.rewards == "modal":
            project_files(config)
        run_apart(check_deployed(config))


def check_rewards(config: RunConfig, problems: list[Problem]) -> None:
    """Every reward function can be imported and scores a made-up completion."""
    if not config.rewards.functions:
        raise ConfigError(
            "rewards.functions is empty; name at least one, as `module:function` or "
            "`path/file.py:function`"
        )
    weights = config.rewards.weights
    if weights is not None and len(weights) != len(config.rewards.functions):
        raise ConfigError(
            f"rewards.weights has {len(weights)} numbers for {len(config.rewards.functions)} "
            "functions; give one each"
        )
    sample = problems[:REHEARSED_PROBLEMS] if config.rewards.rehearse else []
    call_once(_passing_worker(config, "reward"), "rehearse", problems=sample)


def check_training_options(config: RunConfig) -> None:
    """TRL's GRPOConfig accepts the options of `[training]` and `[training.trl]`."""
    for warning in call_once(_passing_worker(config, "actor"), "check"):
        logger.warning("%s", warning)


def _passing_worker(config: RunConfig, role: Role) -> WorkerSpec:
    """A worker of the run without a run directory or a model: good for checks alone."""
    return worker_specs(config, run_dir=Path(os.devnull), model_path="", num_steps=1)[role]
