"""One train step on a model of next to no size, with the options of a run.

TRL and transformers look at some options when they construct their configuration, at others when
they make the optimizer or the schedule, and at others in the first step. All of them are to be
refused before a worker starts.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mortal_steps.config import LoraConfig, ModelConfig, NewModelConfig
from mortal_steps.errors import ConfigError, DivergedError
from mortal_steps.policy.algorithms.stepping.stepper import TrlStepper
from mortal_steps.policy.algorithms.trl_hooks import TrlHooks
from mortal_steps.policy.batches import ScoredRollouts
from mortal_steps.policy.plan import TrainerPlan
from mortal_steps.policy.starting_model.new_model import build_model
from mortal_steps.policy.starting_model.starting_weights import without_a_word
from mortal_steps.scores import weighted_sum
from mortal_steps.types import (
    Completion,
    PolicyVersion,
    Problem,
    Rollout,
    RolloutBatch,
    RolloutGroup,
)

OF_THE_MODEL = {
    *("model_init_kwargs", "optim_target_modules", "router_aux_loss_coef", "cast_lm_head_to_fp32"),
    *("use_liger_kernel", "liger_kernel_config"),
}
"""Options that mean something for the run's own model."""
OF_THE_DEVICE = {
    *("bf16", "fp16", "tf32", "local_rank"),
    *("torch_compile", "torch_compile_backend", "torch_compile_mode"),
}
"""Options that mean something on the actor's own device."""
ON_ANY_DEVICE = {"adamw_torch", "adamw_torch_fused", "adafactor", "sgd", "adagrad", "rmsprop"}
"""Optimizers that need neither a GPU nor a package."""
SMALL = NewModelConfig(alphabet="ab", hidden_size=8, head_dim=8, num_layers=1, intermediate_size=8)
COMPLETION = Completion(
    token_ids=(4, 1),  # `b` and the end
    logprobs=(-1.6, -1.6),  # of a token of five that are equally likely
    text="b",
    finish_reason="stop",
    seed=0,
    policy_version=PolicyVersion(0),
)


def dry_run(plan: TrainerPlan, algorithm: TrlHooks) -> None:
    """Raise `ConfigError` if TRL can take a step without the options in `[training.trl]` and not
    with them; other failures are left to the run."""
    options = plan.training.trl
    elsewhere = OF_THE_MODEL | OF_THE_DEVICE
    if options.get("optim", "adamw_torch") not in ON_ANY_DEVICE:
        elsewhere |= {"optim", "optim_args"}
    chosen = {name: value for name, value in options.items() if name not in elsewhere}
    if not chosen or algorithm.trains_on is not ScoredRollouts:
        return
    with tempfile.TemporaryDirectory(prefix="dry-run-") as name:
        folder = Path(name)
        with without_a_word():
            build_model(folder / "model", SMALL, seed=0)
        algorithm = algorithm.of_small_models(folder / "model")
        error = _failure(_small(plan, chosen), algorithm, folder)
        if error is None or _failure(_small(plan, {}), algorithm, folder) is not None:
            return
        keys = ", ".join(f"training.trl.{name} = {value!r}" for name, value in chosen.items())
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, DivergedError):
            reason = "its first step makes weights that are not finite"
        raise ConfigError(f"{keys}: TRL cannot train with this ({reason})") from error


def _failure(plan: TrainerPlan, algorithm: TrlHooks, folder: Path) -> Exception | None:
    try:
        stepper = TrlStepper(
            algorithm,
            plan,
            model_path=str(folder / "model"),
            num_steps=2,
            output_dir=folder / "output",
            use_cpu=True,
        )
        stepper.begin()
        stepper.train_step(_batch(plan, algorithm), seed=0)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a reason
        return error
    return None


def _small(plan: TrainerPlan, options: Mapping[str, Any]) -> TrainerPlan:
    """Return the configuration with these options, the small model, and as few rows as divide."""
    training = plan.training.model_copy(update={"trl": dict(options)})
    pieces, generations = training.steps_per_generation, training.num_generations
    training = training.model_copy(
        update={
            "batch_size": pieces // math.gcd(pieces, generations),
            "max_completion_length": len(COMPLETION.token_ids),
            "lora": LoraConfig(r=1, dropout=0.0),
        }
    )
    rollout = plan.rollout.model_copy(update={"dtype": None})
    model = ModelConfig(new=SMALL)
    return replace(plan, training=training, model=model, rollout=rollout)


def _batch(plan: TrainerPlan, algorithm: TrlHooks) -> RolloutBatch:
    weights = plan.reward_weights
    rollouts = []
    for number in range(plan.training.num_generations):
        rewards = dict.fromkeys(weights, float(number))
        score = weighted_sum(rewards, weights)
        rollout = Rollout(completion=COMPLETION, rewards=rewards, reward=score)
        rollouts.append(algorithm.made_up(rollout))
    groups = [
        RolloutGroup(
            problem=Problem(id=f"dry-run-{number}", prompt="a"), prompt_ids=(3,), rollouts=rollouts
        )
        for number in range(plan.training.batch_size)
    ]
    return RolloutBatch(step=0, policy_version=PolicyVersion(0), groups=groups)
