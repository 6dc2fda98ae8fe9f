"""The trainer's parameters as a configuration, the same that a TOML file would give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mortal_steps.config import RunConfig
from mortal_steps.config.keys import keys_of
from mortal_steps.config.loader import parse_config
from mortal_steps.errors import ConfigError

KEYS: Mapping[str, str] = {
    "num_generations": "training.num_generations",
    "batch_size": "training.batch_size",
    "learning_rate": "training.learning_rate",
    "max_steps": "training.max_steps",
    "num_epochs": "training.num_epochs",
    "loss_type": "training.loss_type",
    "beta": "training.beta",
    "epsilon": "training.epsilon",
    "scale_rewards": "training.scale_rewards",
    "max_completion_length": "training.max_completion_length",
    "max_tokens": "rollout.max_tokens",
    "max_model_len": "model.max_model_len",
    "use_lora": "training.use_lora",
    "gradient_checkpointing": "training.gradient_checkpointing",
    "algorithm": "algorithm.type",
    "backend": "compute.backend",
    "runs_dir": "runs_dir",
}
"""Parameter -> the key whose value it is."""
ALSO_KEYS: Mapping[str, str] = {
    "model": "model.name_or_path",
    "reward_funcs": "rewards.terms",
    "train_dataset": "data.source",
    "eval_dataset": "data.eval_source",
    "run_id": "run_id",
    "report_to": "logging.report_to",
    "reward_weights": "rewards.weights",
}
"""Parameters that decide a key in another way."""
ORIGIN = "MortalTrainer"

DEFAULT_DATASET: Mapping[str, Any] = {
    "data.source": "OpenCoder-LLM/opc-sft-stage2",
    "data.config": "educational_instruct",
    "data.prompt_column": "instruction",
    "data.max_samples": 128,
}
"""What is trained on where no dataset is given: programs to write, with test cases."""
DEFAULT_MAX_TOKENS = 8000
DEFAULT_EVAL_STEPS = 100
"""Where there is a dataset to evaluate on, and nothing says how often."""


def configure(
    parameters: Mapping[str, Any],
    decided: Mapping[str, Any],
    others: Mapping[str, Any] | None,
) -> RunConfig:
    """The configuration of `parameters` (those in `KEYS`), of the keys that were `decided` in
    another way, and of `others`, any other key by its dotted name.

    Raises `ConfigError` that names the key, the value and the remedy.
    """
    keys = {KEYS[name]: value for name, value in parameters.items()} | dict(decided)
    for key, value in _flat(others or {}):
        _check_free(key, keys)
        keys[key] = value
    return parse_config(_nested(keys), origin=ORIGIN)


def fit_max_tokens(config: RunConfig, context: int | None) -> RunConfig:
    """The same with no more tokens for a completion than half of the model's context, where the
    default number is more than that."""
    room = min(config.model.max_model_len, context or config.model.max_model_len) // 2
    if config.rollout.max_tokens != DEFAULT_MAX_TOKENS or room >= DEFAULT_MAX_TOKENS:
        return config
    rollout = config.rollout.model_copy(update={"max_tokens": room})
    return config.model_copy(update={"rollout": rollout})


def _check_free(key: str, keys: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for a key that a parameter, or the mode, has."""
    for name, taken in {**KEYS, **ALSO_KEYS}.items():
        if key == taken:
            raise ConfigError(
                f"{ORIGIN}(config={{{key!r}: ...}}): that is the parameter {name}; give it there"
            )
    if key in keys and key not in DEFAULT_DATASET:
        raise ConfigError(
            f"{ORIGIN}(config={{{key!r}: ...}}): the parameter mode says so already "
            f"({keys[key]!r}); leave one of them out"
        )


def _flat(values: Mapping[str, Any], prefix: str = "") -> Any:
    """Dotted keys; nested tables, as a TOML file has them, will do as well."""
    known = {key for key, _ in keys_of(RunConfig)}
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and key not in known:
            yield from _flat(value, f"{key}.")
        else:
            yield key, value


def _nested(keys: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in keys.items():
        *tables, name = key.split(".")
        table = nested
        for part in tables:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise ConfigError(f"{ORIGIN}: {key!r}: {part!r} is a value, not a section")
        table[name] = value
    return nested
