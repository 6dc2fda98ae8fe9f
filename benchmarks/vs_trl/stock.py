"""TRL's stock trainer on a MORTAL configuration: `python -m benchmarks.vs_trl.stock JOB`.

One process as a user runs it: TRL samples with transformers, calls the reward functions and
updates, or learns from rows. The options are those MORTAL hands to TRL, the rows and the starting
weights the same.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOTrainer

from benchmarks.meter import StepMeter
from mortal_steps.data.problems import load_problems
from mortal_steps.plan.loader import load_config
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.algorithms.base import algorithm_of
from mortal_steps.policy.algorithms.grpo import GRPO
from mortal_steps.policy.algorithms.rows.columns import row_of
from mortal_steps.policy.algorithms.stepping.options import build_options
from mortal_steps.rewards.loading import load_term


def measure(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stamp at the start of each step, and the rewards; there is no flow run."""
    config = load_config(Path(job["config"]), job["overrides"])
    meter = StepMeter()
    trains = train_on_rows if config.algorithm.judges_by_loss else train
    rewards = trains(config, job["model"], Path(job["folder"]), meter)
    return {"stamps": meter.stamps, "flow_run_id": None, "rewards": rewards}


def train(config: RunConfig, model: str, folder: Path, meter: StepMeter) -> list[float]:
    """Mean reward of each step."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    problems, _ = load_problems(config.data, config.seed)
    arguments = build_options(
        Plan(config).trainer, GRPO(), num_steps=config.training.max_steps, output_dir=folder
    )
    arguments.top_p = config.rollout.top_p
    arguments.top_k = config.rollout.top_k
    trainer = GRPOTrainer(
        model=model,
        args=arguments,
        reward_funcs=[load_term(term) for term in config.rewards.all_terms],
        train_dataset=Dataset.from_list(
            [{"prompt": problem.prompt, **problem.columns} for problem in problems]
        ),
        callbacks=[Stamps(meter)],
    )
    trainer.train()
    return [row["reward"] for row in trainer.state.log_history if "reward" in row]


def train_on_rows(config: RunConfig, model: str, folder: Path, meter: StepMeter) -> list[float]:
    """Loss of each step."""
    algorithm: Any = algorithm_of(config.algorithm)
    problems, _ = load_problems(config.data, config.seed)
    arguments = build_options(
        Plan(config).trainer, algorithm, num_steps=config.training.max_steps, output_dir=folder
    )
    trainer = algorithm.trainer_class()(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_list([row_of(problem) for problem in problems]),
        callbacks=[Stamps(meter)],
    )
    trainer.train()
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


class Stamps(TrainerCallback):
    """Marks the start of every step."""

    def __init__(self, meter: StepMeter) -> None:
        self._meter = meter

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._meter.mark()


if __name__ == "__main__":
    from benchmarks.jobs import answer_job  # it needs Prefect, which stock TRL does not

    answer_job(measure)
