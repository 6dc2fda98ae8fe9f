"""The trainer's parameters as a configuration, the same that a TOML file would give."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mortal.trainer.modes import Mode
from mortal.trainer.objects.datasets import source_of
from mortal.trainer.objects.models import lora_settings, model_settings
from mortal.trainer.objects.rewards import terms_of
from mortal_steps.config import RunConfig
from mortal_steps.config.defaults import CODE_DATASET
from mortal_steps.config.keys import keys_of
from mortal_steps.config.loader import parse_config
from mortal_steps.config.reward_forms import SANDBOX
from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.settling import find_context

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
    "run_id": "run_id",
    "report_to": "logging.report_to",
}
"""Parameter -> the key whose value it is; None is no value."""
ALSO_KEYS: Mapping[str, str] = {
    "model": "model.name_or_path",
    "reward_funcs": "rewards.terms",
    "reward_weights": "rewards.weights",
    "train_dataset": "data.source",
    "eval_dataset": "data.eval_source",
    "runs_dir": "runs_dir",
}
"""Parameters that decide a key in another way."""
ORIGIN = "MortalTrainer"

DEFAULT_DATASET: Mapping[str, Any] = {f"data.{name}": value for name, value in CODE_DATASET.items()}
"""What is trained on where no dataset is given: programs to write, with test cases."""
DEFAULT_MAX_TOKENS = 8000
DEFAULT_EVAL_STEPS = 100
"""Where there is a dataset to evaluate on, and nothing says how often."""


def decided_keys(given: Mapping[str, Any]) -> dict[str, Any]:
    """Keys for what is no plain value among the parameters: the mode, and all that may be an
    object. Raises as the objects' own modules do."""
    runs_dir = _checked_runs_dir(given["runs_dir"])
    _check_table(given["config"])  # before any object is kept
    keys: dict[str, Any] = {
        **given["mode"].settings(),
        **model_settings(given["model"], given["processing_class"], runs_dir),
        "runs_dir": runs_dir,
        "rewards.terms": terms_of(given["reward_funcs"], given["reward_weights"], runs_dir),
    }
    if given["peft_config"] is not None:
        keys |= lora_settings(given["peft_config"])
    if given["train_dataset"] is not None:
        keys["data.source"] = source_of(given["train_dataset"], runs_dir, "train_dataset")
    else:
        _check_programs_are_scored(keys["rewards.terms"])
        keys |= DEFAULT_DATASET
    if given["eval_dataset"] is not None:
        keys["data.eval_source"] = source_of(given["eval_dataset"], runs_dir, "eval_dataset")
        keys["evaluation.eval_steps"] = DEFAULT_EVAL_STEPS
    return keys


def _checked_runs_dir(given: Any) -> str:
    """Objects are kept there before the configuration is checked; raises `ConfigError`."""
    if not isinstance(given, str | Path) or not str(given):
        raise ConfigError(f"{ORIGIN}: runs_dir = {given!r}: name a folder, such as 'runs'")
    return str(given)


def _check_programs_are_scored(terms: Sequence[Mapping[str, Any]]) -> None:
    """Other rewards do not fit the dataset by default; raises `ConfigError`."""
    for place, term in enumerate(terms):
        if term["type"] != SANDBOX:
            raise ConfigError(
                f"{ORIGIN}: reward_funcs[{place}] has no dataset to score; give train_dataset, or "
                "leave reward_funcs out to train on programs with test cases"
            )


def configure(given: Mapping[str, Any], decided: Mapping[str, Any]) -> RunConfig:
    """The configuration of the parameters, of the keys that were `decided` by objects, and of
    `config` among the parameters, any other key by its dotted name.

    Raises `ConfigError` that names the key, the value and the remedy.
    """
    plain = {KEYS[name]: given[name] for name in KEYS if given[name] is not None}
    keys = plain | dict(decided)
    for key, value in _flat(given["config"] or {}):
        _check_free(key, decided)
        keys[key] = value
    return _fitting(parse_config(_nested(keys), origin=ORIGIN))


def checked_mode(mode: Any) -> Mode:
    """The same; raises `ConfigError` for what is no mode."""
    if not isinstance(mode, Mode):
        raise ConfigError(f"mode = {mode!r}: write SingleNode(...) or Distributed(...)")
    return mode


def _check_table(config: Any) -> None:
    if config is not None and not isinstance(config, Mapping):
        raise ConfigError(
            f"{ORIGIN}: config = {config!r:.80}: write keys and values as a dict, such as "
            "{'rollout.staleness': 1}"
        )


def changed_keys(changes: Mapping[str, Any], runs_dir: str) -> dict[str, Any]:
    """Keys for parameters that a fork changes; raises `ConfigError` for what is none of them."""
    keys: dict[str, Any] = {}
    for name, value in changes.items():
        if name == "reward_funcs":
            keys["rewards.terms"] = terms_of(value, changes.get("reward_weights"), runs_dir)
        elif name in ("train_dataset", "eval_dataset"):
            keys[ALSO_KEYS[name]] = source_of(value, runs_dir, name)
        elif name == "mode":
            keys |= checked_mode(value).settings()
        elif name == "config":
            _check_table(value)
            keys |= dict(_flat(value))
        elif name in KEYS:
            keys[KEYS[name]] = value
        elif name != "reward_weights" or "reward_funcs" not in changes:
            raise ConfigError(
                f"fork({name}=...): a fork keeps it; it may change {', '.join(KEYS)}, reward_funcs "
                "(with reward_weights), train_dataset, eval_dataset, mode and config"
            )
    return keys


def overrides(keys: Mapping[str, Any]) -> list[str]:
    """Keys as `--set` has them."""
    return [f"{key}={_toml(value)}" for key, value in keys.items()]


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{json.dumps(k)} = {_toml(v)}' for k, v in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value)


def _fitting(config: RunConfig) -> RunConfig:
    """The same with no more tokens for a completion than half of the model's context, where the
    default number is more than that."""
    if config.rollout.max_tokens != DEFAULT_MAX_TOKENS:
        return config
    most = config.model.max_model_len
    room = min(most, find_context(config.model) or most) // 2
    rollout = config.rollout.model_copy(update={"max_tokens": min(DEFAULT_MAX_TOKENS, room)})
    return config.model_copy(update={"rollout": rollout})


OF_DEFAULTS = frozenset({*DEFAULT_DATASET, "evaluation.eval_steps", "model.dtype"})
"""Keys that have values by default here, which `config` may change."""


def _check_free(key: str, decided: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for a key that a parameter, or the mode, has."""
    for name, taken in {**KEYS, **ALSO_KEYS}.items():
        if key == taken:
            raise ConfigError(
                f"{ORIGIN}(config={{{key!r}: ...}}): that is the parameter {name}; give it there"
            )
    if key in decided and key not in OF_DEFAULTS:
        name = "peft_config" if key.startswith("training.") else "mode"
        raise ConfigError(
            f"{ORIGIN}(config={{{key!r}: ...}}): the parameter {name} says so already "
            f"({decided[key]!r}); leave one of them out"
        )


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys; nested tables, as a TOML file has them, will do as well. An empty table stays:
    `model.new = {}` is one with its defaults."""
    known = {key for key, _ in keys_of(RunConfig)}
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and key not in known:
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
