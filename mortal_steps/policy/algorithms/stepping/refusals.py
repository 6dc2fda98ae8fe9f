"""Options of TRL that a run cannot have or that do nothing here, each with the reason."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from transformers import TrainingArguments

from mortal_steps.errors import ConfigError

ONE_DEVICE = "the actor is one process on one device"
NO_LOADER = "the actor has no data loader: it trains on recorded batches"
OUR_EVALUATION = "[evaluation] decides how the held-out problems are scored"
OUR_CHECKPOINTS = "[checkpoints] decides what is kept; `mortal resume` and `mortal fork` go on"
SAMPLED_ELSEWHERE = "the rollout workers sample; see [rollout] and rollout.engine_options"
NO_SUCH_FILTER = (
    "tokens are drawn by temperature, top_p, top_k and min_p alone (see [rollout]), whose "
    "log-probabilities are recorded as they are"
)
NO_EVALUATION = "it follows evaluations inside TRL's own loop, and there are none"

REFUSED = {
    "logging_steps": "every train step is recorded",
    "logging_strategy": "every train step is recorded",
    "logging_first_step": "every train step is recorded",
    "log_completions": "completions are in the run directory, steps/*/generations-*.parquet",
    "include_num_input_tokens_seen": "TRL counts them in any case: `num_tokens` in metrics.jsonl",
    "disable_tqdm": "workers draw no progress bars",
    "push_to_hub": "the trained model is written to final/",
    "load_best_model_at_end": "use checkpoints.keep_best",
    "eval_on_start": "use evaluation.on_start",
    "report_to": "use logging.report_to: the flow reports what is committed, not the trainer",
    "deepspeed": ONE_DEVICE,
    "fsdp": ONE_DEVICE,
    "use_cpu": "the machine of the actor decides",
    "shuffle_dataset": "use data.shuffle",
    "generation_kwargs": NO_SUCH_FILTER,
    "repetition_penalty": NO_SUCH_FILTER,
    "dataloader_persistent_workers": NO_LOADER,
    "dataloader_prefetch_factor": NO_LOADER,
    "enable_jit_checkpoint": "a run that is stopped saves its state by itself, in checkpoints/",
    "vllm_importance_sampling_*": None,
    "vllm_*": SAMPLED_ELSEWHERE,
}
"""Options of TRL without a key of ours that a run cannot choose, and why; None: it can."""

IDLE = {
    "use_transformers_continuous_batching": SAMPLED_ELSEWHERE,
    "use_transformers_paged": SAMPLED_ELSEWHERE,
    "transformers_continuous_batching_config": SAMPLED_ELSEWHERE,
    "cache_implementation": SAMPLED_ELSEWHERE,
    "remove_unused_columns": "reward functions get every column",
    "max_tool_calling_iterations": "there are no tools",
    "num_generations_eval": OUR_EVALUATION,
    "per_device_eval_batch_size": OUR_EVALUATION,
    "eval_*": OUR_EVALUATION,
    "batch_eval_metrics": OUR_EVALUATION,
    "include_for_metrics": OUR_EVALUATION,
    "prediction_loss_only": OUR_EVALUATION,
    "*_full_eval": OUR_EVALUATION,
    "metric_for_best_model": "use checkpoints.keep_best",
    "greater_is_better": "use checkpoints.keep_best",
    "save_*": OUR_CHECKPOINTS,
    "resume_from_checkpoint": OUR_CHECKPOINTS,
    "restore_callback_states_from_checkpoint": OUR_CHECKPOINTS,
    "hub_*": "the trained model is written to final/",
    "run_name": "use logging.run_name",
    "project": "use logging.project",
    "trackio_*": "use logging.report_to, and trackio's own environment variables",
    "log_multimodal": "see logging.sample_steps",
    "log_unique_prompts": "see logging.sample_steps",
    "num_completions_to_print": "see logging.sample_steps",
    "trust_remote_code": "use model.trust_remote_code",
    "fsdp_config": ONE_DEVICE,
    "ddp_*": ONE_DEVICE,
    "dataloader_*": NO_LOADER,
    "train_sampling_strategy": NO_LOADER,
}
"""Options of TRL that are taken and change nothing, and why."""

REFUSED_VALUES = {
    ("lr_scheduler_type", "reduce_lr_on_plateau"): NO_EVALUATION,
    ("lr_scheduler_type", "greedy"): NO_EVALUATION,
}

TRAINER_ARGUMENTS = {
    "model": "use model.name_or_path",
    "reward_funcs": "use rewards.functions",
    "reward_processing_classes": "rewards.functions are Python functions",
    "train_dataset": "use data.source",
    "eval_dataset": "use data.eval_source",
    "processing_class": "the tokenizer is the model's",
    "callbacks": "the actor takes none",
    "optimizers": "use training.trl.optim",
    "peft_config": "use training.use_lora and [training.lora]",
    "quantization_config": "use [model.quantization]",
    "rollout_func": "the rollout workers sample; see [rollout]",
    "tools": "completions are single turns without tools",
    "environment_factory": "completions are single turns without tools",
}
"""Arguments of TRL's trainers, which are no options of their configurations, and what there is
instead."""

LOADING = {
    "dtype": "use model.dtype",
    "torch_dtype": "use model.dtype",
    "trust_remote_code": "use model.trust_remote_code",
    "revision": "use model.revision",
    "device_map": ONE_DEVICE,
    "tp_plan": ONE_DEVICE,
    "quantization_config": "use [model.quantization]",
    "load_in_8bit": "use [model.quantization]",
    "load_in_4bit": "use [model.quantization]",
}
"""Names in TRL's `model_init_kwargs`, arguments of `from_pretrained`, that a run cannot choose."""

REPEATABLE_ATTENTION = ("sdpa", "eager")
"""Implementations of attention whose gradients are the same each time."""

CLOSE = 0.75
"""How alike (difflib's ratio) a name is that is offered for an unknown one."""


def options_of(kind: type[TrainingArguments]) -> list[str]:
    """Names of the options that a configuration of TRL's has, such as GRPOConfig."""
    return [field.name for field in dataclasses.fields(kind) if field.init]


def check_names(chosen: Mapping[str, Any], kind: type[TrainingArguments]) -> None:
    """Raise `ConfigError` for an option that this configuration of TRL's does not know, or that a
    run cannot have."""
    known = options_of(kind)
    for name, value in chosen.items():
        key = f"training.trl.{name}"
        if instead := TRAINER_ARGUMENTS.get(name):
            raise ConfigError(f"{key} is an argument of TRL's trainer, not an option: {instead}")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=CLOSE)
            hint = f"; did you mean training.trl.{near[0]}?" if near else ""
            raise ConfigError(f"{key}: TRL's {kind.__name__} has no such option{hint}")
        if reason := _reason(REFUSED, name):
            raise ConfigError(f"{key} cannot be set: {reason}")
        if isinstance(value, str) and (name, value) in REFUSED_VALUES:
            reason = REFUSED_VALUES[name, value]
            raise ConfigError(f"{key} = {value!r} cannot be used: {reason}")


def loading_options(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """`training.trl.model_init_kwargs`, which TRL also takes as a JSON string.

    Raises `ConfigError` for an argument of `from_pretrained` that a run cannot choose.
    """
    key = "training.trl.model_init_kwargs"
    given = chosen.get("model_init_kwargs") or {}
    try:
        options = json.loads(given) if isinstance(given, str) else given
    except ValueError as error:
        raise ConfigError(f"{key} = {given!r} is not JSON: {error}") from None
    if not isinstance(options, Mapping):
        raise ConfigError(
            f"{key} = {given!r}: write a table, such as {{attn_implementation = ...}}"
        )
    for name in options:
        if reason := LOADING.get(name):
            raise ConfigError(f"{key}.{name} cannot be set: {reason}")
    return dict(options)


def idle_options(chosen: Mapping[str, Any]) -> tuple[str, ...]:
    """A sentence for each option that changes nothing here."""
    reasons = {name: _reason(IDLE, name) for name in chosen}
    return tuple(
        f"training.trl.{name} changes nothing: {reason}"
        for name, reason in reasons.items()
        if reason
    )


def unrepeatable_options(chosen: Mapping[str, Any]) -> tuple[str, ...]:
    """A sentence for each option with which a step may have other bits when it is repeated."""
    said = "a run that is killed and resumed may not end with the same bits"
    found = []
    if chosen.get("torch_compile"):
        found.append(
            f"training.trl.torch_compile = true: on a GPU, kernels are chosen by measuring; {said}"
        )
    attention = loading_options(chosen).get("attn_implementation", "sdpa")
    if attention not in REPEATABLE_ATTENTION:
        found.append(
            f"training.trl.model_init_kwargs.attn_implementation = {attention!r}: of attention on "
            f"a GPU, only {' and '.join(REPEATABLE_ATTENTION)} are known to repeat; {said}"
        )
    return tuple(found)


def _reason(table: Mapping[str, str | None], name: str) -> str | None:
    """Of the first entry that the name fits."""
    return next((reason for entry, reason in table.items() if fnmatchcase(name, entry)), None)
