"""Turns a run and a user's wishes into the command of a server."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.resolve_defaults import rollout_interpreter
from mortal_steps.runs.run import Run, find_run
from mortal_steps.serving.commands import (
    Endpoint,
    Interpreter,
    ServerCommand,
    look_at,
    transformers_command,
    vllm_command,
)
from mortal_steps.serving.folder import ServedModel, assemble
from mortal_steps.serving.saved import choose

logger = logging.getLogger(__name__)

EngineChoice = Literal["vllm", "transformers"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What the user wants to be served."""

    step: int | None = None
    """Train steps done; None: the run's newest model."""
    engine: EngineChoice | None = None
    """None: vLLM if the interpreter has it, otherwise transformers."""
    merged: bool = False
    """Whether an adapter is merged into its base for vLLM, too."""
    python: str | None = None
    """The interpreter for vLLM; None: that of the run's rollout workers."""


def prepare(
    run: Run, wanted: Wanted, endpoint: Endpoint, folder: Path, say: Callable[[str], None]
) -> tuple[ServedModel, ServerCommand]:
    """Fill the scratch folder with the model. Returns it with the command that starts its server.

    Raises `ConfigError` if the engine is not installed, and the errors of `choose` and `assemble`.
    """
    interpreter = _interpreter(run, wanted)
    merged = wanted.merged or interpreter is None or run.config.only_merged is not None
    saved = choose(run, wanted.step, merged=merged)
    if wanted.step is None and saved.step < run.info.num_steps:
        say(
            f"run {run.info.run_id} is {run.status()}, step {run.manifest.step} of "
            f"{run.info.num_steps}; serving its newest model, of step {saved.step}"
        )
    if saved.kind == "parameters" or (saved.kind == "adapter" and merged):
        say(f"exporting {run.store.path(saved.path)}")
    named = wanted.step is not None
    served = assemble(run, saved, folder, step_named=named, merged=merged)
    return served, _command(run, interpreter, served, endpoint)


def start_in_container(
    runs_dir: Path, run_id: str, step: int | None, port: int
) -> subprocess.Popen[bytes]:
    """Start vLLM's server in a container on Modal, and return at once; who calls waits for the
    port.

    The model's files are copied from the Volume, where links are not possible, and checked against
    their digests. Raises the errors of `prepare`: among others, a checkpoint without published
    weights cannot be exported here, because the container has no trainer.
    """
    run = find_run(runs_dir, run_id)
    folder = Path(tempfile.mkdtemp(prefix="mortal-serving-"))  # it disappears with the container
    endpoint = Endpoint(host="0.0.0.0", port=port)
    wanted = Wanted(step=step, engine="vllm", python=sys.executable)
    served, command = prepare(run, wanted, endpoint, folder, logger.info)
    logger.info("starting vLLM's server with %s, step %d", run_id, served.step)
    return subprocess.Popen(command.arguments, env={**os.environ, **command.environment})


def _interpreter(run: Run, wanted: Wanted) -> Interpreter | None:
    """The interpreter whose vLLM serves the model; None if transformers serves it."""
    if wanted.engine == "transformers":
        return None
    python = wanted.python or rollout_interpreter(run.config.compute)
    found = look_at(python)
    if found.vllm:
        return found
    if wanted.engine == "vllm":
        raise ConfigError(
            f"--engine vllm: {python} has no vLLM; name an interpreter that has it with --python "
            "(`make vllm-env` makes one), or serve with --engine transformers"
        )
    return None


def _command(
    run: Run, interpreter: Interpreter | None, served: ServedModel, endpoint: Endpoint
) -> ServerCommand:
    model = run.config.model
    if interpreter is not None:
        return vllm_command(interpreter, served, model, endpoint)
    return transformers_command(served, model, endpoint, run.config.training.template_options)
