"""Turns the trainer's parameters into a configuration, as a TOML file would give it."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from mortal.trainer.modes import Distributed, Mode
from mortal.trainer.objects.datasets import eval_keys, source_of
from mortal.trainer.objects.environments import agent_code, environment_keys
from mortal.trainer.objects.models import lora_settings, model_settings, quantization_settings
from mortal.trainer.objects.rewards import terms_of
from mortal_steps.config import TrainingConfig
from mortal_steps.config.rewards import SANDBOX, in_full
from mortal_steps.config.trl_options import CONFIGS, check_names
from mortal_steps.errors import ConfigError
from mortal_steps.plan.loader import CODE_DATASET, every_key, parse_config, write_key
from mortal_steps.plan.run_config import RunConfig

ScaleRewards = Literal["group", "batch", "none"] | bool

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
"""Parameter -> the key that takes its value. The value None leaves the key at its default."""
ALSO_KEYS: Mapping[str, str] = {
    "model": "model.name_or_path",
    "reward_funcs": "rewards.terms",
    "reward_weights": "rewards.weights",
    "train_dataset": "data.source",
    "eval_dataset": "data.eval_source",
    "tools": "environment.tools",
    "environment_factory": "environment.factory",
    "runs_dir": "runs_dir",
}
"""Parameter -> a key that it determines in another way."""
ORIGIN = "MortalTrainer"
RUNS_DIR = "runs"
"""Default of `runs_dir`."""

DEFAULT_DATASET: Mapping[str, Any] = {f"data.{name}": value for name, value in CODE_DATASET.items()}
"""The dataset if none is given: programming problems with test cases."""
REWARDS = ("rewards.terms", "rewards.functions", "rewards.weights")
OF_REWARDS = ("reward_funcs", "reward_weights", "reward_processing_classes")
"""Keys, and parameters, that say how completions are scored."""
AGENT = "environment.agent"
EXCLUDE = "data.exclude_held_out"
DEFAULT_EVAL_STEPS = 100
"""Steps between evaluations if there is a dataset for them and `config` does not say how often."""


def decided_keys(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that follow from parameters which are not plain values: the mode, and all
    those that may be objects. Raises the errors of the modules in `objects`."""
    runs_dir = _checked_runs_dir(given["runs_dir"])
    keys: dict[str, Any] = {
        **checked_mode(given["mode"]).settings(),
        **model_settings(given["model"], given["processing_class"], runs_dir),
        "runs_dir": runs_dir,
    }
    keys |= environment_keys(given["tools"], given["environment_factory"], runs_dir)
    terms = _terms_in(given)
    if terms is None and _environment_scores(given):
        terms = []
    elif terms is None:
        terms = keys["rewards.terms"] = terms_of(
            given["reward_funcs"],
            given["reward_weights"],
            runs_dir,
            given["reward_processing_classes"],
        )
    if given["peft_config"] is not None:
        keys |= lora_settings(given["peft_config"])
    if given["quantization_config"] is not None:
        keys |= quantization_settings(given["quantization_config"])
    if given["train_dataset"] is not None:
        size = given["batch_size"] or TrainingConfig.model_fields["batch_size"].default
        steps = given["max_steps"]
        known = isinstance(steps, int) and isinstance(size, int) and steps > 0
        needs = steps * size if known else None
        keys["data.source"] = source_of(given["train_dataset"], runs_dir, "train_dataset", needs)
    elif given["environment_factory"] is None and not _has_kind(given):
        _check_programs_are_scored(terms)
        keys |= DEFAULT_DATASET
    if given["eval_dataset"] is not None:
        keys |= eval_keys(given["eval_dataset"], runs_dir)
        keys["evaluation.eval_steps"] = DEFAULT_EVAL_STEPS
        keys[EXCLUDE] = False  # as TRL's trainer, which trains on all of train_dataset
    return keys


def _environment_scores(given: Mapping[str, Any]) -> bool:
    """Return whether no reward is given, because an environment has its own."""
    if given["environment_factory"] is None and not _has_kind(given):
        return False
    if given["reward_funcs"] is not None:
        return False
    for name in ("reward_weights", "reward_processing_classes"):
        if given[name]:
            raise ConfigError(
                f"{ORIGIN}({name}={given[name]!r:.80}): there are no reward_funcs that it is for; "
                "the weight of `get_reward` is 1. Leave it out"
            )
    return True


def _has_kind(given: Mapping[str, Any]) -> bool:
    """Return whether the parameter `config` names an environment."""
    return "environment.type" in dict(flat(given["config"] or {}))


def _checked_runs_dir(given: Any) -> str:
    """Return it, checked before objects are written there. Raises `ConfigError`."""
    if not isinstance(given, str | Path) or not str(given):
        raise ConfigError(f"{ORIGIN}: runs_dir = {given!r}: name a folder, such as 'runs'")
    return str(given)


def _terms_in(given: Mapping[str, Any]) -> list[Any] | None:
    """Return the rewards in `config`, if any. Raises `ConfigError` for others beside them."""
    table = dict(flat(given["config"] or {}))
    if not any(key in table for key in REWARDS):
        return None
    beside = [name for name in OF_REWARDS if given[name] is not None]
    if beside:
        raise ConfigError(
            f"{ORIGIN}: rewards are in config and in {beside[0]}; write them in one of the two"
        )
    return [*table.get(REWARDS[0], ()), *map(in_full, table.get(REWARDS[1], ()))]


def _check_programs_are_scored(terms: Sequence[Mapping[str, Any]]) -> None:
    """Raise `ConfigError` for a reward that does not fit the default dataset."""
    for place, term in enumerate(terms):
        if not isinstance(term, Mapping) or term.get("type") != SANDBOX:
            raise ConfigError(
                f"{ORIGIN}: reward_funcs[{place}] needs a dataset; give train_dataset, or leave "
                "out reward_funcs to train on programming problems with test cases"
            )


def configure(given: Mapping[str, Any], decided: Mapping[str, Any]) -> RunConfig:
    """Return the configuration that the parameters `given` describe. `decided` holds the keys of
    `decided_keys`. The parameter `config` holds any other keys by their dotted names. Raises
    `ConfigError`, which names the key, the value and the remedy."""
    plain = {KEYS[name]: given[name] for name in KEYS if given[name] is not None}
    keys = plain | dict(decided)
    for key, value in flat(given["config"] or {}):
        _check_free(key, decided)
        keys[key] = agent_code(value, decided["runs_dir"]) if key == AGENT else value
    nested: dict[str, Any] = {}
    for key, value in keys.items():
        write_key(nested, key, dict(value) if isinstance(value, Mapping) else value)
    config = parse_config(nested, origin=ORIGIN)
    config.compute.check_mode()
    if config.algorithm.judges_by_loss:
        raise ConfigError(
            f"algorithm = {config.algorithm.type!r} learns from rows of a dataset, and "
            "MortalTrainer samples completions and scores them; write the settings into a TOML "
            "file, and call `mortal train` with it (docs/rows.md)"
        )
    if config.training.trl and config.algorithm.type in CONFIGS:
        check_names(config.training.trl, CONFIGS[config.algorithm.type])
    return config


def checked_mode(mode: Any) -> Mode:
    """Return the mode, by default `Distributed()`. Raises `ConfigError` for what is none."""
    if mode is None:
        return Distributed()
    if not isinstance(mode, Mode):
        raise ConfigError(f"mode = {mode!r}: write SingleNode(...) or Distributed(...)")
    return mode


def check_table(config: Any) -> None:
    if config is not None and not isinstance(config, Mapping):
        raise ConfigError(
            f"{ORIGIN}: config = {config!r:.80}: write keys and values as a dict, such as "
            "{'rollout.staleness': 1}"
        )


OF_DEFAULTS = frozenset({*DEFAULT_DATASET, EXCLUDE, "evaluation.eval_steps", "model.dtype"})
"""Keys that have default values here, which `config` may change."""


def _check_free(key: str, decided: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for a key that a parameter or the mode sets."""
    for name, taken in {**KEYS, **ALSO_KEYS}.items():
        if key == taken and (key not in REWARDS or key in decided):
            raise ConfigError(
                f"{ORIGIN}(config={{{key!r}: ...}}): use the parameter {name} instead"
            )
    if key in decided and key not in OF_DEFAULTS:
        name = "peft_config" if key.startswith("training.") else "mode"
        name = "quantization_config" if key == "model.quantization" else name
        name = "mode, or use_vllm in args," if key == "rollout.engine" else name
        raise ConfigError(
            f"{ORIGIN}(config={{{key!r}: ...}}): the parameter {name} sets this key already "
            f"({decided[key]!r}); leave out one of the two"
        )


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys with their values. `values` may contain dotted keys as well as nested tables. An
    empty table is kept, because `model.new = {}` means a table with its defaults."""
    known = {key for key, _ in every_key()}
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and key not in known:
            yield from flat(value, f"{key}.")
        else:
            yield key, value
