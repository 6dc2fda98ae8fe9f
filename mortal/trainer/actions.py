"""The actions of the process that drives a trainer's run; a request names one of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mortal.trainer.messages import IN_NOTEBOOK
from mortal_steps.config import RunConfig
from mortal_steps.registry.registry import Registry
from mortal_steps.runs.objects import FOLDER
from mortal_steps.runs.run import Run, find_run
from mortal_steps.types import Prompt, SamplingParams


def train(config: RunConfig) -> None:
    """Drive the run to its end, as `mortal train` does. In a notebook it prints no summary, because
    the notebook shows the result."""
    from mortal.driver import drive

    drive(config, port=0, keep_server=False, sums_up=IN_NOTEBOOK not in os.environ)


def detach(config: RunConfig) -> str:
    """Let a container on Modal drive the run, as `mortal train --detach` does. Returns the id of
    the call on Modal."""
    from mortal_steps.orchestration.detaching import detach as begin_detached

    return begin_detached(config)


def fork(config: RunConfig, step: int | None, overrides: Sequence[str], run_id: str | None) -> str:
    """Fork the run, as `mortal fork` does. Returns the id of the new run."""
    from mortal.terminal.output import checking
    from mortal_steps.orchestration.fork import fork_run

    parent = _run(config)
    os.chdir(parent.working_dir())
    return fork_run(parent, overrides, at_step=step, run_id=run_id, say=checking).info.run_id


def evaluate(config: RunConfig, data: Mapping[str, Any]) -> dict[str, float]:
    """Score the run's model as `mortal promote` does, on its held-out problems or on those of these
    keys of `[data]`. Returns the mean of each score."""
    import asyncio

    from mortal_steps.data.problems import read_held_out
    from mortal_steps.promotion.gate import Gate

    run = _run(config)
    problems = None
    if data:
        own = {"config": None, "eval_source": None, "eval_split": None, "eval_samples": 0}
        others = {**own, "eval_sets": dict[str, str](), **data}
        problems = read_held_out(run.config.data.model_copy(update=others), run.config.seed)
    gate = Gate(run, _registry(run), problems=problems)
    os.chdir(run.working_dir())
    return dict(asyncio.run(gate.judge(gate.bring_in())).metrics)


def generate(
    config: RunConfig,
    prompts: Sequence[Prompt],
    num_generations: int,
    sampling: SamplingParams,
) -> list[list[str]]:
    """Sample the run's model. Returns `num_generations` texts for each prompt."""
    from mortal_steps.promotion.asking import ask
    from mortal_steps.promotion.candidate import candidate_files

    run = _run(config)
    registry = _registry(run)
    version = registry.add(candidate_files(run))
    os.chdir(run.working_dir())
    return ask(
        registry,
        run,
        run.config,
        version,
        prompts,
        num_generations=num_generations,
        sampling=sampling,
    )


def _run(config: RunConfig) -> Run:
    return find_run(Path(config.runs_dir).absolute(), str(config.run_id))


def _registry(run: Run) -> Registry:
    """Return the registry in which a run's model is kept while it is sampled. It lies beside the
    other objects of trainers."""
    folder = run.store.root.absolute().parent / FOLDER / "asked"
    folder.mkdir(parents=True, exist_ok=True)
    return Registry(folder, run.info.run_id)
