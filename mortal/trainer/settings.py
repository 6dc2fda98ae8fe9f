"""What the parameters of `MortalTrainer` are in a configuration, as a TOML file would give it."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from mortal.trainer.face import (
    DEFAULT_DATASET,
    EXCLUDE,
    REWARDS,
    Face,
    checked_runs_dir,
    flat,
)
from mortal.trainer.modes import Distributed, Mode
from mortal.trainer.objects.datasets import eval_keys, source_of
from mortal.trainer.objects.environments import environment_keys
from mortal.trainer.objects.models import lora_settings, model_settings, quantization_settings
from mortal.trainer.objects.rewards import terms_of
from mortal_steps.config import TrainingConfig
from mortal_steps.config.rewards import SANDBOX, in_full
from mortal_steps.config.trl_options import CONFIGS
from mortal_steps.errors import ConfigError

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
FACE = Face(name=ORIGIN, keys=KEYS, also=ALSO_KEYS, algorithms=CONFIGS)

OF_REWARDS = ("reward_funcs", "reward_weights", "reward_processing_classes")
"""Parameters that say how completions are scored."""
DEFAULT_EVAL_STEPS = 100
"""Steps between evaluations if there is a dataset for them and `config` does not say how often."""


def decided_keys(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that follow from parameters which are not plain values: the mode, and all
    those that may be objects. Raises the errors of the modules in `objects`."""
    runs_dir = checked_runs_dir(given["runs_dir"], ORIGIN)
    adapted = given["peft_config"] is not None
    model, tokenizer = given["model"], given["processing_class"]
    keys: dict[str, Any] = {
        **checked_mode(given["mode"]).settings(),
        **model_settings(model, tokenizer, runs_dir, has_adapter=adapted),
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


def checked_mode(mode: Any) -> Mode:
    """Return the mode, by default `Distributed()`. Raises `ConfigError` for what is none."""
    if mode is None:
        return Distributed()
    if not isinstance(mode, Mode):
        raise ConfigError(f"mode = {mode!r}: write SingleNode(...) or Distributed(...)")
    return mode
