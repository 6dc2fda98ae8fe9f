"""Stock `train()` of GRPOTrainer, RLOOTrainer and trainers that distil, on recorded completions.

Stock TRL runs its own loop over its own dataset with real reward functions; only sampling is
replaced, by what returns recorded completions and then seeds torch as a train step does, so that
both shuffle alike: of GRPO a `rollout_func`, of the others, which have none, the methods that
tokenize prompts and sample.
"""

import dataclasses
import os
import random

import numpy
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import BitsAndBytesConfig, TrainerCallback
from trl import (
    DistillationConfig,
    DistillationTrainer,
    GRPOConfig,
    GRPOTrainer,
    RLOOConfig,
    RLOOTrainer,
)
from trl.generation import vllm_client

from mortal_steps.plan.parts import Plan
from mortal_steps.schedule import train_seed
from tests.support.policy.rollouts import MAX_COMPLETION_LENGTH, REWARD_FUNCTIONS, REWARD_WEIGHTS
from tests.support.policy.teachers import ClientOfRecords

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

OF_THE_CLOCK = {"step_time", "epoch"}


@dataclasses.dataclass
class Outcome:
    """What a run left behind."""

    weights: list
    """After each optimizer update: trainable parameters by name."""
    metrics: list
    """Per train step."""


def run_stock(config, model_path, tmp_path, batches, recorder=None):
    """Return what stock TRL makes of the batches; `recorder.trainer` holds the trained model."""
    training = config.training
    recorder = recorder or Recorder()
    options = options_of(config, tmp_path / "stock", len(batches))
    rollouts = RecordedRollouts(config, batches)
    arguments = {
        "model": model_path,
        "reward_funcs": [rollouts.abstaining(function) for function in REWARD_FUNCTIONS],
        "train_dataset": Dataset.from_dict({"prompt": [f"problem {i}" for i in range(12)]}),
        "peft_config": lora(training.lora) if training.use_lora else None,
        "quantization_config": quantization(config.model.quantization),
        "callbacks": [recorder],
    }
    builders = {"rloo": stock_rloo, "distillation": stock_distillation, "opd": stock_opd}
    build = builders.get(config.algorithm.type, stock_grpo)
    trainer = build(config, options, rollouts, arguments)
    trainer.train()
    recorder.trainer = trainer
    return Outcome(weights=recorder.weights, metrics=recorder.metrics)


def options_of(config, output_dir, num_steps):
    """TRL's options of a run of so many train steps."""
    training = config.training
    rows = len(own_rows(training.rows))
    return {
        "output_dir": str(output_dir),
        "max_steps": num_steps * training.optimizer_steps_per_batch,
        "per_device_train_batch_size": rows // training.steps_per_generation,
        "gradient_accumulation_steps": training.accumulation_steps,
        "num_generations": training.num_generations,
        "num_iterations": training.num_iterations,
        "max_completion_length": MAX_COMPLETION_LENGTH,
        "learning_rate": training.learning_rate,
        "beta": training.beta,
        "epsilon": training.epsilon,
        "epsilon_high": training.epsilon_high,
        "reward_weights": list(REWARD_WEIGHTS),
        "temperature": config.rollout.temperature,
        "gradient_checkpointing": training.gradient_checkpointing,
        "seed": config.seed,
        "bf16": False,
        "use_cpu": not torch.cuda.is_available(),
        "dataloader_pin_memory": False,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "logging_steps": training.optimizer_steps_per_batch,
        **(fsdp2() if training.sharding == "full" else {"ddp_find_unused_parameters": True}),
        **training.trl,
        "model_init_kwargs": {
            "dtype": config.model.dtype,
            **training.trl.get("model_init_kwargs", {}),
        },
    }


def fsdp2():
    at_once = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
    fsdp = {"version": 2, "reshard_after_forward": True}
    return {"fsdp": True, "fsdp_config": fsdp, "accelerator_config": at_once}


def own_rows(count):
    """The numbers of the rows, of so many, that this process trains on: all, or as TRL deals them
    out to several."""
    each = count // int(os.environ.get("WORLD_SIZE", 1))
    first = each * int(os.environ.get("RANK", 0))
    return range(first, first + each)


def stock_grpo(config, options, rollouts, arguments):
    training = config.training
    options |= {"loss_type": training.loss_type, "scale_rewards": training.scale_rewards}
    trainer = GRPOTrainer(args=GRPOConfig(**options), rollout_func=rollouts, **arguments)
    if Plan(config).trainer.corrects_importance:
        trainer.use_vllm = True
        trainer.vllm_generation = NoEngine()
        trainer._last_loaded_step = -1
    return trainer


def stock_rloo(config, options, rollouts, arguments):
    options |= {
        "normalize_advantages": config.algorithm.normalize_advantages,
        "reward_clip_range": config.algorithm.reward_clip_range,
    }

    class SampledElsewhere(RLOOTrainer):
        def _tokenize_prompts(self, prompts):
            self.sampled = rollouts(prompts, self)
            return self.sampled["prompt_ids"], None, {}

        def _generate_single_turn(self, prompt_ids, images, multimodal_fields):
            return self.sampled["completion_ids"]

    return SampledElsewhere(args=RLOOConfig(**options), **arguments)


def lora(options):
    """peft's configuration of `[training.lora]`."""
    targets = options.target_modules
    return LoraConfig(
        r=options.r,
        lora_alpha=options.alpha,
        lora_dropout=options.dropout,
        target_modules=None if targets == "peft-default" else targets,
        **options.peft,
    )


def quantization(options):
    """transformers' configuration of `[model.quantization]`."""
    return BitsAndBytesConfig(**options) if options else None


OF_DISTILLATION = {field.name for field in dataclasses.fields(DistillationConfig) if field.init}


def stock_distillation(config, options, rollouts, arguments):
    """Stock TRL has a row per prompt. Here it is shown as many as there are completions."""
    teacher = config.algorithm.teacher
    options = {name: value for name, value in options.items() if name in OF_DISTILLATION}
    options |= {
        "beta": config.algorithm.beta,
        "teacher_model_init_kwargs": {"dtype": teacher.dtype},
    }
    arguments = {name: arguments[name] for name in arguments if name != "reward_funcs"}
    arguments["train_dataset"] = Dataset.from_dict({"prompt": ["ab"] * config.training.rows})

    class SampledElsewhere(DistillationTrainer):
        def _tokenize_prompts(self, prompts):
            self.sampled = rollouts(prompts, self)
            return self.sampled["prompt_ids"], None, {}

        def _generate_single_turn(self, prompt_ids, images, multimodal_fields):
            return self.sampled["completion_ids"]

    return SampledElsewhere(
        args=DistillationConfig(**options), teacher_model=teacher.name_or_path, **arguments
    )


def stock_opd(config, options, rollouts, arguments):
    """Stock TRL asks a server. Here its client is given what the batches have recorded."""
    from trl.experimental.server_distillation import (
        ServerDistillationConfig,
        ServerDistillationTrainer,
    )

    algorithm = config.algorithm
    options = {name: value for name, value in options.items() if name in OF_DISTILLATION}
    options |= {
        "beta": algorithm.beta,
        "loss_top_k": algorithm.loss_top_k,
        "loss_add_tail": algorithm.loss_add_tail,
        "teacher_model_server_url": "http://nobody",
    }
    arguments = {name: arguments[name] for name in arguments if name != "reward_funcs"}
    arguments["train_dataset"] = Dataset.from_dict({"prompt": ["ab"] * config.training.rows})

    class SampledElsewhere(ServerDistillationTrainer):
        def _tokenize_prompts(self, prompts):
            self.sampled = rollouts(prompts, self)
            return self.sampled["prompt_ids"], None, {}

        def _generate_single_turn(self, prompt_ids, images, multimodal_fields):
            return self.sampled["completion_ids"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vllm_client, "VLLMClient", ClientOfRecords(rollouts.recorded))
        return SampledElsewhere(args=ServerDistillationConfig(**options), **arguments)


class NoEngine:
    def sync_weights(self):
        pass


class RecordedRollouts:
    """TRL's `rollout_func`: returns one recorded batch after the other."""

    def __init__(self, config, batches):
        self.config = config
        self.recorded = batches
        self.batches = iter(batches)
        self.whole = []
        """The last batch's completions, longer than what is trained on."""

    def __call__(self, prompts, trainer):
        batch = next(self.batches)
        every = [(group, rollout) for group in batch.groups for rollout in group.rollouts]
        rows = [every[number] for number in own_rows(len(every))]
        assert len(prompts) == len(rows)
        end = self.config.training.max_completion_length
        output = {
            "prompt_ids": [
                list(rollout.completion.prompt_ids or group.prompt_ids) for group, rollout in rows
            ],
            "completion_ids": [list(rollout.completion.token_ids[:end]) for _, rollout in rows],
            "logprobs": [list(rollout.completion.logprobs[:end]) for _, rollout in rows],
        }
        self.whole = [list(rollout.completion.token_ids) for _, rollout in rows]
        if any(rollout.completion.turns for _, rollout in every):
            output["env_mask"] = [mask_of(rollout.completion)[:end] for _, rollout in rows]
        seed = train_seed(self.config.seed, batch.step) + int(os.environ.get("RANK", 0))
        random.seed(seed)
        numpy.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        return output

    def abstaining(self, function):
        """The reward function on whole completions; rows of three tokens are left unscored."""

        def reward(**kwargs):
            pairs = zip(self.whole, function(self.whole), strict=True)
            return [None if len(ids) == 3 else score for ids, score in pairs]

        reward.__name__ = function.__name__
        return reward


def mask_of(completion):
    """Return what TRL calls the mask of an environment: 1 where the model wrote."""
    if not completion.turns:
        return [1 for _ in completion.token_ids]
    return [
        int(any(turn.start <= place < turn.stop for turn in completion.turns))
        for place in range(len(completion.token_ids))
    ]


class Recorder(TrainerCallback):
    """Keeps the weights after every optimizer update, and what is logged."""

    def __init__(self):
        self.weights = []
        self.metrics = []

    def on_step_end(self, args, state, control, model=None, **kwargs):
        self.weights.append(self.of(model))

    def of(self, model):
        """Return what is kept of the weights."""
        trained = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
        return {
            name: (p.full_tensor() if hasattr(p, "full_tensor") else p).clone()
            for name, p in trained.items()
        }

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            kept = {name: logs[name] for name in logs if name not in OF_THE_CLOCK}
            self.metrics.append({k: v for k, v in kept.items() if v is not None})
