"""Stock `GRPOTrainer(tools=..., environment_factory=...).train()`, sampled by one of our engines.

Everything is TRL's own: its loop over the dataset, its templates, parser, tool loop, masks, rewards
and metrics. Only `_generate_single_turn` is replaced, by the engine with a run's seeds; and torch
is seeded after sampling as a train step does, so that both shuffle alike.
"""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass, field
from typing import Any

import torch
from datasets import Dataset
from peft import PeftModel
from trl import GRPOConfig, GRPOTrainer

from mortal_steps.policy.algorithms.stepping.reproducible import seed_everything
from mortal_steps.schedule import completion_seed, derive_seed, train_seed
from tests.support.policy.stock import NoEngine, Recorder, lora, options_of


@dataclass
class Step:
    """What was sampled in a step and what it earned, row by row."""

    prompts: list = field(default_factory=list)
    prompt_ids: list = field(default_factory=list)
    completion_ids: list = field(default_factory=list)
    masks: list = field(default_factory=list)
    messages: list = field(default_factory=list)
    rewards: dict = field(default_factory=dict)


@dataclass
class Outcome:
    """What a run left behind."""

    steps: list
    weights: list
    """After each optimizer update: trainable parameters by name."""
    metrics: list
    """Per train step."""

    @property
    def num_calls(self) -> int:
        """Calls that were answered."""
        rows = [row for step in self.steps for row in step.messages]
        return sum(message["role"] == "tool" for row in rows for message in row)

    @property
    def was_trained(self) -> bool:
        """Whether the weights moved."""
        return any(step["grad_norm"] > 0 for step in self.metrics)


class SampledByEngine(GRPOTrainer):
    """GRPOTrainer that has its tokens from an engine."""

    def __init__(self, *, run: Any, engine: Any, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.run, self.engine = run, engine
        self.steps: list[Step] = []

    def _generate(self, prompts):
        self.steps.append(Step())
        self.turn = 0
        rows = range(len(prompts))
        size, step = self.num_generations, len(self.steps) - 1
        problems = self.run.batch(step)
        self.seeds = [
            completion_seed(self.run.config.seed, step, problems[row // size].id, row % size)
            for row in rows
        ]
        self.engine_with(self.model)
        answer = super()._generate(prompts)
        found = self.steps[-1]
        columns = copy.deepcopy(answer[:4])
        found.prompt_ids, found.completion_ids, found.masks, found.messages = columns
        seed_everything(train_seed(self.run.config.seed, step))
        return answer

    def _generate_single_turn(self, prompt_ids, *multimodal, **options):
        caller = sys._getframe(1).f_locals
        rows = caller.get("idxs_with_tool", range(len(prompt_ids)))
        seeds = [
            self.seeds[row] if self.turn == 0 else derive_seed("turn", self.seeds[row], self.turn)
            for row in rows
        ]
        self.turn += 1
        sampled = self.engine.sample(prompt_ids, seeds, self.run.config.sampling)
        ids = [list(each.token_ids) for each in sampled]
        if not self.use_vllm:
            return ids, None
        return ids, [list(each.logprobs) for each in sampled]

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        found = self.steps[-1]
        found.prompts = copy.deepcopy(prompts)
        names = self.reward_func_names
        found.rewards = {name: rewards[:, column].tolist() for column, name in enumerate(names)}
        return rewards

    def engine_with(self, model):
        """Give the engine the weights of the model that is trained."""
        if isinstance(model, PeftModel):
            return
        with torch.no_grad():
            own = dict(self.engine._model.named_parameters())
            for name, tensor in model.named_parameters():
                own[name].copy_(tensor)


def run_stock(run, engine, folder) -> Outcome:
    """Train with stock TRL on the rows of a run."""
    config, environment = run.config, run.config.environment
    recorder = Recorder()
    options = options_of(config, folder, run.num_steps) | {
        "max_completion_length": config.training.max_completion_length,
        "max_tool_calling_iterations": environment.max_tool_calling_iterations,
        "chat_template_kwargs": dict(config.training.template_options),
        "loss_type": config.training.loss_type,
        "scale_rewards": config.training.scale_rewards,
        "shuffle_dataset": False,
        "reward_weights": list(run.weights) or None,
    }
    trainer = SampledByEngine(
        run=run,
        engine=engine,
        model=run.model_path,
        args=GRPOConfig(**options),
        reward_funcs=list(run.functions),
        tools=list(run.tools) or None,
        environment_factory=run.factory,
        train_dataset=Dataset.from_list(run.rows),
        peft_config=lora(config.training.lora) if config.training.use_lora else None,
        callbacks=[recorder],
    )
    if config.training.importance_sampling_correction:
        trainer.use_vllm, trainer.vllm_mode = True, "server"
        trainer.vllm_generation, trainer._last_loaded_step = NoEngine(), -1
    trainer.train()
    return Outcome(steps=trainer.steps, weights=recorder.weights, metrics=recorder.metrics)
