"""One train step on a model of next to no size, with the options of a run.

TRL and transformers look at some options when they construct their configuration, at others when
they make the optimizer or the schedule, and at others in the first step. All of them are to be
refused before a worker starts.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mortal_steps.config import LoraConfig, ModelConfig, NewModelConfig, RunConfig
from mortal_steps.errors import ConfigError, DivergedError
from mortal_steps.policy.algorithms.base import Stepper
from mortal_steps.policy.starting_model.new_model import build_model
from mortal_steps.policy.starting_model.starting_weights import without_a_word
from mortal_steps.scores import reward_weights, weighted_sum
from mortal_steps.types import (
    Completion,
    PolicyVersion,
    Problem,
    Rollout,
    RolloutBatch,
    RolloutGroup,
)

Build = Callable[..., Stepper]

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
PROMPT, TOKENS = (3,), (4, 1)
"""`a`, and what is said to have been sampled: `b` and the end."""
LOGPROB = -1.6
"""About that of a token of five that are equally likely."""


def rehearse(config: RunConfig, build: Build) -> None:
    """Raise `ConfigError` for an option in `[training.trl]` with which TRL fails, and without which
    it takes a step. `build` is the class of the run's stepper.

    What fails without any single one of them is left for the run itself to tell.
    """
    options = config.training.trl
    elsewhere = OF_THE_MODEL | OF_THE_DEVICE
    if options.get("optim", "adamw_torch") not in ON_ANY_DEVICE:
        elsewhere |= {"optim", "optim_args"}
    chosen = {name: value for name, value in options.items() if name not in elsewhere}
    if not chosen:
        return
    with tempfile.TemporaryDirectory(prefix="rehearsal-") as name:
        folder = Path(name)
        with without_a_word():
            build_model(folder / "model", SMALL, seed=0)
        error = _failure(config, chosen, build, folder)  # what TRL warns of is for the user
        if error is None:
            return
        for option, value in chosen.items():
            others = {other: chosen[other] for other in chosen if other != option}
            if _failure(config, others, build, folder) is None:
                raise ConfigError(
                    f"training.trl.{option} = {value!r}: TRL cannot train with it ({_told(error)})"
                ) from error


def _failure(
    config: RunConfig, options: Mapping[str, Any], build: Build, folder: Path
) -> Exception | None:
    small = _small(config, options)
    try:
        stepper = build(
            small,
            model_path=str(folder / "model"),
            num_steps=2,
            output_dir=folder / "output",
            use_cpu=True,
        )
        stepper.begin()
        stepper.train_step(_batch(small), seed=0)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a reason
        return error
    return None


def _told(error: Exception) -> str:
    if isinstance(error, DivergedError):
        return "its first step makes weights that are not finite"
    return f"{type(error).__name__}: {error}"


def _small(config: RunConfig, options: Mapping[str, Any]) -> RunConfig:
    """The configuration with these options, the small model, and as few rows as divide."""
    training = config.training.model_copy(update={"trl": dict(options)})
    pieces, generations = training.steps_per_generation, training.num_generations
    training = training.model_copy(
        update={
            "batch_size": pieces // math.gcd(pieces, generations),
            "max_completion_length": len(TOKENS),
            "lora": LoraConfig(r=1, dropout=0.0),
        }
    )
    rollout = config.rollout.model_copy(update={"dtype": None})
    model = ModelConfig(new=SMALL)
    return config.model_copy(update={"training": training, "model": model, "rollout": rollout})


def _batch(config: RunConfig) -> RolloutBatch:
    weights = reward_weights(config.rewards)
    groups = []
    for place in range(config.training.batch_size):
        problem = Problem(id=f"rehearsed-{place}", prompt="a")
        rollouts = [
            Rollout(
                completion=Completion(
                    token_ids=TOKENS,
                    logprobs=[LOGPROB] * len(TOKENS),
                    text="b",
                    finish_reason="stop",
                    seed=0,
                    policy_version=PolicyVersion(0),
                ),
                rewards=dict.fromkeys(weights, float(number)),
                reward=weighted_sum(dict.fromkeys(weights, float(number)), weights),
            )
            for number in range(config.training.num_generations)
        ]
        groups.append(RolloutGroup(problem=problem, prompt_ids=PROMPT, rollouts=rollouts))
    return RolloutBatch(step=0, policy_version=PolicyVersion(0), groups=groups)
