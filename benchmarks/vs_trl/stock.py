"""TRL's stock trainer on a MORTAL configuration.

One process as a user runs it: TRL samples with transformers, calls the reward functions and
updates, or learns from rows. The options are those MORTAL hands to TRL, the rows and the starting
weights the same.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import TrainerCallback

from benchmarks.meter import StepMeter
from mortal_steps.data.problems import load_problems
from mortal_steps.plan.loader import load_config
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.algorithms.base import algorithm_of
from mortal_steps.policy.algorithms.rows.columns import row_of
from mortal_steps.policy.algorithms.stepping.options import build_options
from mortal_steps.policy.starting_model.base_model import make_base_model
from mortal_steps.rewards.loading import load_term


def measure(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stamp at the start of each step, and the rewards; there is no flow run."""
    config = load_config(Path(job["config"]), job["overrides"])
    meter = StepMeter()
    rewards = train(config, job["model"], Path(job["folder"]), meter)
    return {"stamps": meter.stamps, "flow_run_id": None, "rewards": rewards}


def train(config: RunConfig, model: str, folder: Path, meter: StepMeter) -> list[float]:
    """Return the mean reward of each step, or its loss where rows are learned from."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    algorithm: Any = algorithm_of(config.algorithm)
    problems, _ = load_problems(config.data, config.seed)
    arguments = build_options(
        Plan(config).trainer, algorithm, num_steps=config.training.max_steps, output_dir=folder
    )
    options: dict[str, Any] = {}
    measure, rows = "loss", [row_of(problem) for problem in problems]
    if not config.algorithm.judges_by_loss:
        arguments.top_p = config.rollout.top_p
        arguments.top_k = config.rollout.top_k
        options["reward_funcs"] = [load_term(term) for term in config.rewards.all_terms]
        measure, rows = "reward", [{"prompt": each.prompt, **each.columns} for each in problems]
    trainer = algorithm.trainer_class()(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        callbacks=[Stamps(meter)],
        **options,
    )
    trainer.train()
    return [row[measure] for row in trainer.state.log_history if measure in row]


def starting_model(job: Mapping[str, Any]) -> str:
    """Return the folder of the model that every run of a configuration starts from."""
    config = load_config(Path(job["config"]), job["overrides"])
    problems, _ = load_problems(config.data, config.seed)
    return make_base_model(Plan(config).actor, problems)


class Stamps(TrainerCallback):
    """Marks the start of every step."""

    def __init__(self, meter: StepMeter) -> None:
        self._meter = meter

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._meter.mark()
