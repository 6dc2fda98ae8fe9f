"""Bytes that a real train step allocates on the CPU, as torch's profiler counts them."""

import dataclasses
import gc
import random
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor
from torch.profiler import ProfilerActivity, profile
from transformers import AutoConfig, AutoModelForCausalLM

from mortal_steps.config import NewModelConfig
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.algorithms.base import algorithm_of
from mortal_steps.policy.algorithms.stepping.stepper import TrlStepper
from mortal_steps.policy.starting_model.new_model import build_tokenizer
from mortal_steps.types import Completion, Problem, Rollout, RolloutBatch, RolloutGroup

SHORT = 8
REWARD = "mortal.rewards.functions:exact_match"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """Bytes of tensors."""

    static: int
    """Weights and the optimizer's moments, between two steps."""
    peak: int
    """The most at any moment of a step."""


def build(folder: Path, *, model_type: str = "qwen2", **shape) -> Path:
    """Write a model of this shape with a character tokenizer, whatever its vocabulary."""
    tokenizer = build_tokenizer(NewModelConfig())
    tokenizer.save_pretrained(folder)
    config = AutoConfig.for_model(
        model_type,
        **{"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None, **shape},
    )
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def measure(
    folder: Path,
    output_dir: Path,
    *,
    prompt: int,
    completion: int,
    autocast=False,
    teacher=None,
    **training,
):
    """Return the second train step with full-length completions; by distillation if there is a
    folder of a teacher."""
    distils = {"type": "distillation", "teacher": str(teacher)} if teacher else {}
    config = RunConfig.model_validate(
        {
            "model": {"name_or_path": str(folder), "dtype": training.pop("dtype", "float32")},
            "algorithm": distils,
            "rewards": {"functions": [REWARD]},
            "rollout": {"engine": "transformers", "max_tokens": completion},
            "training": {"max_completion_length": completion, "learning_rate": 1e-6, **training},
        }
    )
    stepper = TrlStepper(
        algorithm_of(config.algorithm),
        Plan(config).trainer,
        model_path=str(folder),
        num_steps=3,
        output_dir=output_dir,
        autocast=autocast,
        use_cpu=True,
    )
    stepper.begin()
    stepper.train_step(full_batch(config, 0, SHORT, SHORT), seed=0)  # makes the optimizer's moments
    gc.collect()
    model, optimizer = stepper._trainer.model, stepper._trainer.optimizer
    kept = [*model.parameters()]
    for beside in ("ref_model", "teacher_model"):
        if (other := getattr(stepper._trainer, beside, None)) is not None:
            kept += other.parameters()
    kept += [value for state in optimizer.state.values() for value in state.values()]
    static = sum(local(tensor).nbytes for tensor in kept)
    batch = full_batch(config, 1, prompt, completion)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        stepper.train_step(batch, seed=1)
    events = profiled.profiler.kineto_results.events()
    changes = sorted(
        (event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"
    )
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return config, Measured(static=static, peak=static + most)


def local(tensor):
    """What this rank holds of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def full_batch(config, step, prompt, completion):
    """Return a batch whose prompts and completions have these lengths; every second is rewarded."""
    source = random.Random(step)
    groups = []
    for place in range(config.training.batch_size):
        rollouts = []
        for number in range(config.training.num_generations):
            tokens = tuple(source.randrange(3, 70) for _ in range(completion))
            answer = Completion(
                token_ids=tokens,
                logprobs=(-4.0,) * completion,
                text="",
                finish_reason="length",
                seed=1,
                policy_version=step,
            )
            score = float(number % 2)
            rollouts.append(
                Rollout(completion=answer, rewards={"exact_match": score}, reward=score)
            )
        prompt_ids = [source.randrange(3, 70) for _ in range(prompt)]
        problem = Problem(id=f"p{step}-{place}", prompt="abc")
        groups.append(RolloutGroup(problem=problem, prompt_ids=prompt_ids, rollouts=rollouts))
    return RolloutBatch(step=step, policy_version=step, groups=groups)
