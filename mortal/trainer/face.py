"""From the parameters of a trainer's class to a configuration: what all of these classes share."""

import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mortal.trainer.objects.environments import agent_code
from mortal_steps.config import TrainingConfig
from mortal_steps.config.algorithm import AlgorithmConfig
from mortal_steps.config.trl_options import check_names, config_of
from mortal_steps.errors import ConfigError
from mortal_steps.plan.loader import CODE_DATASET, every_key, write_key

RUNS_DIR = "runs"
"""Default of `runs_dir`."""
DEFAULT_DATASET: Mapping[str, Any] = {f"data.{name}": value for name, value in CODE_DATASET.items()}
"""The dataset if none is given: programming problems with test cases."""
REWARDS = ("rewards.terms", "rewards.functions", "rewards.weights")
"""Keys that say how completions are scored."""
AGENT = "environment.agent"
EXCLUDE = "data.exclude_held_out"
OF_DEFAULTS = frozenset({*DEFAULT_DATASET, EXCLUDE, "evaluation.eval_steps", "model.dtype"})
"""Keys that have default values here, which `config` may change."""
SETS = {
    "model.quantization": "the parameter quantization_config",
    "rollout.engine": "the parameter mode, or use_vllm in args,",
    "algorithm.type": "the class",
    "training.trl.model_init_kwargs": "the model object",
    "training.trl.pad_token": "the parameter processing_class",
    "algorithm.teacher.name_or_path": "the parameter teacher_model",
}
"""Key -> what sets it, where that is not the mode."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Face:
    """What users see of a trainer's class."""

    name: str
    """Of the class, for messages."""
    keys: Mapping[str, str]
    """Parameter -> the key that takes its value."""
    also: Mapping[str, str]
    """Parameter -> a key that it determines in another way."""
    algorithms: Collection[str]
    """Those with a configuration of TRL's that it trains."""


def values_of(given: Mapping[str, Any], decided: Mapping[str, Any], face: Face) -> dict[str, Any]:
    """Return the nested values of the configuration that the parameters `given` describe. `decided`
    holds the keys of `decided_keys`. The parameter `config` holds any other keys by their dotted
    names. Raises `ConfigError`, which names the key, the value and the remedy."""
    plain = {key: given[name] for name, key in face.keys.items() if given[name] is not None}
    keys = plain | dict(decided)
    for key, value in flat(given["config"] or {}):
        _check_free(key, decided, face)
        keys[key] = agent_code(value, decided["runs_dir"]) if key == AGENT else value
    nested: dict[str, Any] = {}
    for key, value in keys.items():
        write_key(nested, key, dict(value) if isinstance(value, Mapping) else value)
    return nested


def check_kind(algorithm: AlgorithmConfig, training: TrainingConfig, face: Face) -> None:
    """Raise `ConfigError` for an algorithm that is another class's, and for options that TRL's
    configuration of it does not have."""
    kind = algorithm.type
    if algorithm.judges_by_loss and kind not in face.algorithms:
        raise ConfigError(
            f"algorithm = {kind!r} learns from rows of a dataset, and {face.name} samples "
            f"completions and scores them; use mortal.{trainer_of_rows(kind)}, or a TOML "
            "file with `mortal train` (docs/rows.md)"
        )
    if training.trl and kind in face.algorithms:
        check_names(training.trl, str(config_of(kind)))


def trainer_of_rows(algorithm: str) -> str:
    """Return the name of the trainer that learns from rows by this algorithm, TRL's and ours."""
    kind = config_of(algorithm)
    return kind.replace("Config", "Trainer") if kind else "SFTTrainer"


def checked_runs_dir(given: Any, origin: str) -> str:
    """Return it, checked before objects are written there. Raises `ConfigError`."""
    if not isinstance(given, str | Path) or not str(given):
        raise ConfigError(f"{origin}: runs_dir = {given!r}: name a folder, such as 'runs'")
    return str(given)


def warn_of_idle(name: str, idle: Iterable[str]) -> None:
    """Warn of options that change nothing, at the line of the script that constructs the trainer:
    one class may construct itself by way of another."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_name == "__init__":
        frame, level = frame.f_back, level + 1
    for sentence in idle:
        warnings.warn(f"{name}: {sentence}", stacklevel=level)


def check_table(config: Any, origin: str) -> None:
    if config is not None and not isinstance(config, Mapping):
        raise ConfigError(
            f"{origin}: config = {config!r:.80}: write keys and values as a dict, such as "
            "{'rollout.staleness': 1}"
        )


def _check_free(key: str, decided: Mapping[str, Any], face: Face) -> None:
    """Raise `ConfigError` for a key that a parameter, the mode or the class sets."""
    for name, taken in {**face.keys, **face.also}.items():
        if key == taken and (key not in REWARDS or key in decided):
            raise ConfigError(
                f"{face.name}(config={{{key!r}: ...}}): use the parameter {name} instead"
            )
    if key in decided and key not in OF_DEFAULTS:
        adapter = "the parameter peft_config" if key.startswith("training.") else None
        name = SETS.get(key) or adapter or "the parameter mode"
        raise ConfigError(
            f"{face.name}(config={{{key!r}: ...}}): {name} sets this key already "
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
