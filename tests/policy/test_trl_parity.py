"""The stepped trainer against stock `GRPOTrainer.train()`: the same bits, no tolerance.

Stock TRL runs its own loop over its own dataset with real reward functions; only sampling is
replaced, by a `rollout_func` that returns recorded completions and then seeds torch as a train step
does, so that both shuffle alike. Compared are the trainable weights after every optimizer update
and every metric but those of the clock.
"""

import dataclasses
import os
import random

import numpy
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from mortal_steps.policy.trl_adapter import GRPOStepper
from mortal_steps.schedule import train_seed
from tests.policy.rollouts import (
    MAX_COMPLETION_LENGTH,
    REWARD_FUNCTIONS,
    REWARD_WEIGHTS,
    make_batch,
    make_config,
)

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

LOSSES = ["grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo"]
CORRECTIONS = ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]
ACCUMULATED = {"gradient_accumulation_steps": 4, "num_iterations": 2, "beta": 0.05}
NUM_STEPS = 3
OF_THE_CLOCK = {"step_time", "epoch"}


@pytest.mark.parametrize("schedule", [{}, ACCUMULATED], ids=["plain", "accumulated"])
@pytest.mark.parametrize("use_lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("loss", LOSSES)
def test_losses(model_path, tmp_path, loss, use_lora, schedule):
    check_parity(model_path, tmp_path, loss_type=loss, use_lora=use_lora, **schedule)


@pytest.mark.parametrize("schedule", [{}, ACCUMULATED], ids=["plain", "accumulated"])
@pytest.mark.parametrize("mode", CORRECTIONS)
def test_importance_sampling_correction(model_path, tmp_path, mode, schedule):
    stepped = check_parity(
        model_path,
        tmp_path,
        loss_type="grpo",
        importance_sampling_correction=True,
        trl={"vllm_importance_sampling_mode": mode, "vllm_importance_sampling_clip_max": 1.25},
        **schedule,
    )
    assert 0 < stepped.metrics[0]["sampling/importance_sampling_ratio/max"] <= 1.25


@pytest.mark.parametrize("loss", LOSSES)
def test_importance_sampling_correction_of_each_loss(model_path, tmp_path, loss):
    mode = {"vllm_importance_sampling_mode": "token_truncate"}
    check_parity(
        model_path, tmp_path, loss_type=loss, importance_sampling_correction=True, trl=mode
    )


@pytest.mark.parametrize(
    "options",
    [
        {"gradient_checkpointing": True},
        {"gradient_checkpointing": True, "use_lora": True},
        {"epsilon": 0.01, "epsilon_high": 0.02, **ACCUMULATED},
        {"scale_rewards": "batch"},
        {"scale_rewards": "none", "loss_type": "dr_grpo"},
        {"trl": {"importance_sampling_level": "sequence"}, **ACCUMULATED},
        {"trl": {"multi_objective_aggregation": "normalize_then_sum"}},
        {"trl": {"delta": 1.5, "top_entropy_quantile": 0.5}, **ACCUMULATED},
        {"trl": {"use_adaptive_entropy": True, "entropy_target": 4.3}, **ACCUMULATED},
        {"trl": {"sync_ref_model": True, "ref_model_sync_steps": 2}, **ACCUMULATED},
        {"trl": {"mask_truncated_completions": True, "off_policy_mask_threshold": 0.1}},
        {"trl": {"steps_per_generation": 2, "max_grad_norm": 0.0, "warmup_steps": 2}},
    ],
    ids=lambda options: "-".join([*options.get("trl", {}), *sorted(set(options) - {"trl"})]),
)
def test_options(model_path, tmp_path, options):
    check_parity(model_path, tmp_path, **options)


def test_temperature(model_path, tmp_path):
    check_parity(model_path, tmp_path, rollout={"temperature": 0.7}, **ACCUMULATED)


def test_bfloat16_weights(model_path, tmp_path):
    check_parity(model_path, tmp_path, model={"dtype": "bfloat16"})


def test_a_slightly_different_reward_shows(model_path, tmp_path):
    config = make_config()
    batches = [make_batch(config, step) for step in range(NUM_STEPS)]
    stock = run_stock(config, model_path, tmp_path, batches)
    stepped = run_stepped(config, model_path, tmp_path, [nudge(batches[0]), *batches[1:]])
    assert differ(stock.weights[0], stepped.weights[0])


def test_another_shuffle_shows(model_path, tmp_path):
    config = make_config(loss_type="bnpo", **ACCUMULATED)
    batches = [make_batch(config, step) for step in range(NUM_STEPS)]
    stock = run_stock(config, model_path, tmp_path, batches)
    stepped = run_stepped(config, model_path, tmp_path, batches, seed=config.seed + 1)
    assert differ(stock.weights[0], stepped.weights[0])


@dataclasses.dataclass
class Outcome:
    """What a run left behind."""

    weights: list
    """After each optimizer update: trainable parameters by name."""
    metrics: list
    """Per train step."""


def check_parity(model_path, tmp_path, **training):
    config = make_config(**training)
    batches = [make_batch(config, step) for step in range(NUM_STEPS)]
    stock = run_stock(config, model_path, tmp_path, batches)
    stepped = run_stepped(config, model_path, tmp_path, batches)
    num_updates = NUM_STEPS * config.training.optimizer_steps_per_batch
    assert len(stock.weights) == len(stepped.weights) == num_updates
    assert differ(stock.weights[0], stock.weights[-1]), "nothing was trained"
    for theirs, ours in zip(stock.weights, stepped.weights, strict=True):
        assert theirs.keys() == ours.keys()
        assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
    assert stepped.metrics == stock.metrics
    return stepped


def differ(some, others):
    return any(not torch.equal(some[name], others[name]) for name in some)


def run_stepped(config, model_path, tmp_path, batches, seed=None):
    stepper = GRPOStepper(
        config, model_path=model_path, num_steps=len(batches), output_dir=tmp_path / "stepped"
    )
    recorder = Recorder()
    stepper._trainer.add_callback(recorder)
    stepper.begin()
    seed = config.seed if seed is None else seed
    metrics = [stepper.train_step(batch, seed=train_seed(seed, batch.step)) for batch in batches]
    return Outcome(weights=recorder.weights, metrics=metrics)


def run_stock(config, model_path, tmp_path, batches):
    training = config.training
    arguments = GRPOConfig(
        output_dir=str(tmp_path / "stock"),
        max_steps=len(batches) * training.optimizer_steps_per_batch,
        per_device_train_batch_size=16 // training.steps_per_generation,
        gradient_accumulation_steps=training.gradient_accumulation_steps,
        num_generations=4,
        num_iterations=training.num_iterations,
        max_completion_length=MAX_COMPLETION_LENGTH,
        learning_rate=1e-3,
        loss_type=training.loss_type,
        beta=training.beta,
        epsilon=training.epsilon,
        epsilon_high=training.epsilon_high,
        scale_rewards=training.scale_rewards,
        reward_weights=list(REWARD_WEIGHTS),
        temperature=config.rollout.temperature,
        gradient_checkpointing=training.gradient_checkpointing,
        seed=config.seed,
        bf16=False,
        model_init_kwargs={"dtype": config.model.dtype},
        dataloader_pin_memory=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_steps=training.optimizer_steps_per_batch,
        **training.trl,
    )
    rollouts = RecordedRollouts(config, batches)
    recorder = Recorder()
    trainer = GRPOTrainer(
        model=model_path,
        args=arguments,
        reward_funcs=[rollouts.abstaining(function) for function in REWARD_FUNCTIONS],
        train_dataset=Dataset.from_dict({"prompt": [f"problem {i}" for i in range(12)]}),
        rollout_func=rollouts,
        peft_config=lora() if training.use_lora else None,
        callbacks=[recorder],
    )
    if training.importance_sampling_correction:
        trainer.use_vllm = True
        trainer.vllm_generation = NoEngine()
        trainer._last_loaded_step = -1
    trainer.train()
    return Outcome(weights=recorder.weights, metrics=recorder.metrics)


def lora():
    return LoraConfig(
        task_type="CAUSAL_LM", r=16, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear"
    )


class NoEngine:
    def sync_weights(self):
        pass


class RecordedRollouts:
    """TRL's `rollout_func`: returns one recorded batch after the other."""

    def __init__(self, config, batches):
        self.config = config
        self.batches = iter(batches)

    def __call__(self, prompts, trainer):
        batch = next(self.batches)
        rows = [(group, rollout) for group in batch.groups for rollout in group.rollouts]
        assert len(prompts) == len(rows)
        end = MAX_COMPLETION_LENGTH
        output = {
            "prompt_ids": [list(group.prompt_ids) for group, _ in rows],
            "completion_ids": [list(rollout.completion.token_ids[:end]) for _, rollout in rows],
            "logprobs": [list(rollout.completion.logprobs[:end]) for _, rollout in rows],
            "whole_completion": [list(rollout.completion.token_ids) for _, rollout in rows],
        }
        seed = train_seed(self.config.seed, batch.step)
        random.seed(seed)
        numpy.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        return output

    @staticmethod
    def abstaining(function):
        """The reward function on whole completions; rows of three tokens are left unscored."""

        def reward(whole_completion, **kwargs):
            scores = function(whole_completion)
            pairs = zip(whole_completion, scores, strict=True)
            return [None if len(ids) == 3 else score for ids, score in pairs]

        reward.__name__ = function.__name__
        return reward


class Recorder(TrainerCallback):
    """Keeps the weights after every optimizer update, and what is logged."""

    def __init__(self):
        self.weights = []
        self.metrics = []

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.weights.append(
            {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
        )

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            kept = {name: logs[name] for name in logs if name not in OF_THE_CLOCK}
            self.metrics.append({k: v for k, v in kept.items() if v is not None})


def nudge(batch):
    """The same batch with one reward changed by 1e-3."""
    group = batch.groups[0]
    rollout = next(r for r in group.rollouts if r.reward is not None)
    rewards = {**rollout.rewards, "evenness": rollout.rewards["evenness"] + 1e-3}
    changed = dataclasses.replace(rollout, rewards=rewards)
    rollouts = [changed if r is rollout else r for r in group.rollouts]
    groups = [dataclasses.replace(group, rollouts=rollouts), *batch.groups[1:]]
    return dataclasses.replace(batch, groups=groups)
