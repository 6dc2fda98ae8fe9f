"""From a run's configuration to TRL's GRPOConfig, and from its complaints to ours."""

from __future__ import annotations

import dataclasses
import difflib
import warnings
from pathlib import Path
from typing import Any, get_type_hints

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError
from trl import GRPOConfig

from mortal_steps.config import RunConfig
from mortal_steps.errors import ConfigError

FIXED_OPTIONS = {
    "logging_steps": "every train step is recorded",
    "logging_strategy": "every train step is recorded",
    "logging_first_step": "every train step is recorded",
    "log_completions": "completions are in the run directory, steps/*/generations-*.json",
    "include_num_input_tokens_seen": "TRL counts tokens itself, as `num_tokens`",
    "disable_tqdm": "workers draw no progress bars",
    "push_to_hub": "the trained model is written to final/",
    "load_best_model_at_end": "use checkpoints.keep_best",
    "eval_on_start": "use evaluation.on_start",
    "deepspeed": "the actor is one process on one device",
    "fsdp": "the actor is one process on one device",
    "use_cpu": "the machine of the actor decides",
}
"""GRPOConfig options without a key of ours that a run cannot choose, and why."""

SAMPLING_OPTIONS = {"shuffle_dataset", "generation_kwargs", "repetition_penalty"}
"""GRPOConfig options about TRL's own sampling, like all of `vllm_*` but the correction."""


def check_trl_options(config: RunConfig) -> None:
    """Build the GRPOConfig of a run and drop it; raises `ConfigError`.

    May run on a machine without the actor's GPU: what only that GPU could refuse passes here.
    """
    elsewhere = config.compute.backend == "modal" and not torch.cuda.is_available()
    build_trl_config(config, num_steps=1, output_dir=Path("unused"), use_cpu=elsewhere)


def build_trl_config(
    config: RunConfig, *, num_steps: int, output_dir: Path, use_cpu: bool = False
) -> GRPOConfig:
    """The GRPOConfig of a run of `num_steps` train steps. Raises `ConfigError`."""
    chosen = config.training.trl
    _check_names(chosen)
    _check_types(chosen)
    ours = _our_options(config, num_steps=num_steps, output_dir=output_dir)
    ours["use_cpu"] = use_cpu
    try:
        built = _construct(ours | chosen)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise ConfigError(_explain(error, ours, chosen)) from error
    _check_vespo(built)
    return built


def _our_options(config: RunConfig, *, num_steps: int, output_dir: Path) -> dict[str, Any]:
    """What the run decides; of these, `[training.trl]` may set `bf16` alone."""
    training, rollout = config.training, config.rollout
    return {
        "bf16": config.model.dtype == "bfloat16" and torch.cuda.is_available(),
        "output_dir": str(output_dir),
        "seed": config.seed,
        "max_steps": num_steps * training.optimizer_steps_per_batch,
        "per_device_train_batch_size": training.rows // training.steps_per_generation,
        "gradient_accumulation_steps": training.gradient_accumulation_steps,
        "num_generations": training.num_generations,
        "num_iterations": training.num_iterations,
        "learning_rate": training.learning_rate,
        "loss_type": training.loss_type,
        "beta": training.beta,
        "epsilon": training.epsilon,
        "epsilon_high": training.epsilon_high,
        "scale_rewards": training.scale_rewards,
        "max_completion_length": training.max_completion_length,
        "gradient_checkpointing": training.gradient_checkpointing,
        "reward_weights": list(config.rewards.weights) if config.rewards.weights else None,
        "temperature": rollout.temperature,
        "vllm_importance_sampling_correction": config.corrects_importance,
        "model_init_kwargs": {
            "dtype": config.model.dtype,
            "trust_remote_code": config.model.trust_remote_code,
        },
        # One log entry per train step: TRL averages over the step's optimizer updates.
        "logging_strategy": "steps",
        "logging_steps": training.optimizer_steps_per_batch,
        # Decides nothing in TRL's forward, but is written to the config.json of saved models, where
        # "no" would slow down whoever samples from them.
        "use_cache": True,
        "save_strategy": "no",
        "eval_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }


def _construct(options: dict[str, Any]) -> GRPOConfig:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return GRPOConfig(**options)


def _check_names(chosen: dict[str, Any]) -> None:
    known = [field.name for field in dataclasses.fields(GRPOConfig) if field.init]
    for name in chosen:
        if name in FIXED_OPTIONS:
            raise ConfigError(f"training.trl.{name} cannot be set: {FIXED_OPTIONS[name]}")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"; did you mean training.trl.{near[0]}?" if near else ""
            raise ConfigError(f"training.trl.{name}: TRL's GRPOConfig has no such option{hint}")
        is_engine = name.startswith("vllm_") and not name.startswith("vllm_importance_sampling_")
        if is_engine or name in SAMPLING_OPTIONS:
            raise ConfigError(
                f"training.trl.{name} would do nothing: the rollout workers sample; see [rollout] "
                "and rollout.engine_options"
            )


def _check_types(chosen: dict[str, Any]) -> None:
    # GRPOConfig is a plain dataclass: it takes any value of any type and fails much later.
    hints = get_type_hints(GRPOConfig)
    for name, value in chosen.items():
        kind = TypeAdapter(hints[name], config=ConfigDict(arbitrary_types_allowed=True))
        try:
            kind.validate_python(value, strict=True)
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            raise ConfigError(f"training.trl.{name} = {value!r}: {reason}") from None


def _explain(error: Exception, ours: dict[str, Any], chosen: dict[str, Any]) -> str:
    """Name the option to blame: the one without which TRL accepts the rest."""
    for name, value in chosen.items():
        others = {key: other for key, other in chosen.items() if key != name}
        try:
            _construct(ours | others)
        except (ValueError, TypeError, NotImplementedError):
            continue
        return f"training.trl.{name} = {value!r}: {error}"
    return f"training: TRL's GRPOConfig refuses this: {error}"


def _check_vespo(built: GRPOConfig) -> None:
    # TRL's own check looks at `use_vllm`, which is off in the GRPOConfig (see trl_adapter).
    mode = built.vllm_importance_sampling_mode
    corrects = built.vllm_importance_sampling_correction
    if built.loss_type == "vespo" and corrects and not mode.startswith("token_"):
        raise ConfigError(
            f"training.trl.vllm_importance_sampling_mode = {mode!r}: the vespo loss corrects "
            "importance per token; set it to 'token_truncate' or 'token_mask'"
        )
