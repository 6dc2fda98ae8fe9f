"""From a run and what the user wants to a server's command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.settling import rollout_interpreter
from mortal_steps.runs.run import Run
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

EngineChoice = Literal["vllm", "transformers"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What a user asks to be served."""

    step: int | None = None
    """None: the run's last."""
    engine: EngineChoice | None = None
    """None: vLLM where an interpreter has it."""
    merged: bool = False
    """Whether an adapter is to be added to its base, also for vLLM."""
    python: str | None = None
    """Interpreter for vLLM; None: that of the run's rollout workers."""


def prepare(
    run: Run, wanted: Wanted, endpoint: Endpoint, folder: Path, say: Callable[[str], None]
) -> tuple[ServedModel, ServerCommand]:
    """Fill the scratch folder, and say how a server of it is started.

    Raises `ConfigError` for an engine that is not there, and what `choose` and `assemble` raise.
    """
    interpreter = _interpreter(run, wanted)
    merged = wanted.merged or interpreter is None
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


def _interpreter(run: Run, wanted: Wanted) -> Interpreter | None:
    """The one whose vLLM serves; None for transformers."""
    if wanted.engine == "transformers":
        return None
    python = wanted.python or rollout_interpreter(run.config)
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
