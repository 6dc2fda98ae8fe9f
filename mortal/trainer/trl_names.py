"""What each option of TRL's configurations is called here."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mortal_steps.config.field_metadata import trl_option
from mortal_steps.config.trl_options import CONFIGS, TRAINER_ARGUMENTS, options_of
from mortal_steps.errors import ConfigError
from mortal_steps.extensions import nearest
from mortal_steps.plan.loader import every_key

SAME: Mapping[str, str] = {
    option: key for key, field in every_key() if (option := trl_option(field))
} | {
    "num_train_epochs": "training.num_epochs",
    "gradient_accumulation_steps": "training.gradient_accumulation_steps",
}
"""Option of TRL -> the key with its value, for which TRL's default counts, too."""
OTHER: Mapping[str, str] = {
    "top_p": "rollout.top_p",
    "top_k": "rollout.top_k",
    "min_p": "rollout.min_p",
    "shuffle_dataset": "data.shuffle",
    "trust_remote_code": "model.trust_remote_code",
    "report_to": "logging.report_to",
    "run_name": "logging.run_name",
    "project": "logging.project",
    "save_total_limit": "checkpoints.keep_last",
    "eval_on_start": "evaluation.on_start",
    "normalize_advantages": "algorithm.normalize_advantages",
    "reward_clip_range": "algorithm.reward_clip_range",
    "max_tool_calling_iterations": "environment.max_tool_calling_iterations",
    "vllm_importance_sampling_correction": "training.importance_sampling_correction",
    "vllm_max_model_length": "model.max_model_len",
    "vllm_enable_sleep_mode": "rollout.sleep_while_training",
    "vllm_gpu_memory_utilization": "rollout.engine_options.gpu_memory_utilization",
    "vllm_tensor_parallel_size": "rollout.engine_options.tensor_parallel_size",
    "vllm_model_impl": "rollout.engine_options.model_impl",
}
"""Option of TRL -> the key with its value, if the option is set."""
SIZES = ("per_device_train_batch_size", "generation_batch_size", "steps_per_generation")
IN_BATCHES: Mapping[str, str] = {
    "save_steps": "checkpoints.save_steps",
    "eval_steps": "evaluation.eval_steps",
}
"""Option of TRL that counts optimizer updates -> the key that counts batches."""
SPECIAL = frozenset(
    {*SIZES, *SAME, *OTHER, *IN_BATCHES, "max_steps", "save_strategy", "eval_strategy"}
    | {"use_vllm", "vllm_mode", "output_dir", "model_init_kwargs", "reward_weights", "bf16"}
    | {"resume_from_checkpoint"}
)
"""Options that are translated by name; the rest goes to `[training.trl]`."""
IN_ARGS = (
    *("num_generations", "batch_size", "learning_rate", "max_steps", "num_epochs", "loss_type"),
    *("beta", "epsilon", "scale_rewards", "max_completion_length", "gradient_checkpointing"),
    *("report_to", "reward_weights"),
)
"""Parameters that say what `args` says."""
GONE: Mapping[str, str] = {
    "tokenizer": "it is called processing_class",
    "ref_model": "the reference model is the model that training begins with; see training.beta",
    "max_prompt_length": "TRL has no such option any more; data.on_long = 'drop' in config leaves "
    "out rows whose prompt is too long",
    "data_collator": "completions are put together as GRPOTrainer does it",
    "compute_metrics": "evaluations score with the reward functions",
    "trust_remote_code": "write config={'model.trust_remote_code': True}",
}
"""Names that are not TRL's, or not any more, and what there is instead."""


def key_of(option: str) -> str:
    """Return the key that an option of TRL's has become."""
    return {**IN_BATCHES, **SAME, **OTHER}.get(option, f"training.trl.{option}")


def refuse_argument(name: str, value: Any, parameters: Iterable[str]) -> None:
    """Raise `ConfigError` for any further argument but TRL's own that asks for nothing."""
    kinds = tuple(CONFIGS.values())
    refuse(name, value, parameters, origin="MortalTrainer", kinds=kinds, key_of=key_of, gone=GONE)


def refuse(
    name: str,
    value: Any,
    parameters: Iterable[str],
    *,
    origin: str,
    kinds: Sequence[str],
    key_of: Callable[[str], str],
    gone: Mapping[str, str],
    arguments: Mapping[str, str] = TRAINER_ARGUMENTS,
) -> None:
    """Raise `ConfigError` for an argument of `origin` that is none of its `parameters`, unless it
    is one of TRL's `arguments` and asks for nothing. `kinds` are the configurations whose options
    are no arguments; `gone` and `arguments` say what there is instead."""
    if instead := arguments.get(name):
        if not _is_empty(value):
            raise ConfigError(f"{origin}({name}=...): {instead}")
        return
    known = {option for kind in kinds for option in options_of(kind)}
    if name in known:
        raise ConfigError(
            f"{origin}({name}=...): this is an option of TRL's; write it into "
            f"args={kinds[0]}(...), or as config={{{key_of(name)!r}: {value!r}}}"
        )
    near = nearest(name, [*parameters, *known], cutoff=0.75)
    hint = f"; did you mean {near}?" if near else ""
    hint = f": {gone[name]}" if name in gone else hint
    trainer = kinds[0].replace("Config", "Trainer")
    ours = origin if origin != trainer else "mortal's"
    raise ConfigError(
        f"{origin}({name}=...): neither {ours} nor TRL's {trainer} and {kinds[0]} have it{hint}"
    )


def _is_empty(value: Any) -> bool:
    """Return whether it asks for nothing, such as `optimizers=(None, None)`."""
    return not any(part is not None for part in value) if isinstance(value, tuple) else not value
