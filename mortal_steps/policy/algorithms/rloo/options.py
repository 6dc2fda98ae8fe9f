"""From a run's configuration to TRL's RLOOConfig."""

from __future__ import annotations

from typing import Any

from trl import RLOOConfig

from mortal_steps.config import RunConfig
from mortal_steps.config.marks import trl_options_decided
from mortal_steps.errors import ConfigError
from mortal_steps.policy.algorithms.stepping.options import build_options, check_options

OF_GRPO = "leave it out, or set algorithm.type = 'grpo'"

LACKING = {
    "loss_type": "RLOO has one loss, its own",
    "scale_rewards": "RLOO takes the rewards of a group as they are (but see "
    "algorithm.normalize_advantages)",
    "importance_sampling_correction": "TRL's RLOO corrects for no difference between the "
    "sampler's and the trainer's log-probabilities",
}
"""Keys of `[training]` that mean nothing to RLOO: it takes their defaults for nothing said."""


def check_trl_options(config: RunConfig) -> tuple[str, ...]:
    """Build the RLOOConfig of a run and drop it (`check_options`)."""
    return check_options(config, build_trl_config)


def build_trl_config(config: RunConfig, **options: Any) -> RLOOConfig:
    """The RLOOConfig of a run (`build_options`). Raises `ConfigError`, also for what RLOO lacks."""
    _check_keys(config)
    _check_chosen(config)
    _check_samples_are_fresh(config)
    return build_options(config, RLOOConfig, **options)


def _check_keys(config: RunConfig) -> None:
    """A key is set where it has another value than its default: a run's own config.toml says
    everything, and so does one that a person wrote out."""
    for key, reason in LACKING.items():
        value = getattr(config.training, key)
        if value and value != type(config.training).model_fields[key].default:
            raise ConfigError(f"training.{key} = {value!r}: {reason}; {OF_GRPO}")


def _check_chosen(config: RunConfig) -> None:
    """Options of TRL's that the algorithm's own table has."""
    own = trl_options_decided(type(config.algorithm))
    for option in config.training.trl:
        if option in own:
            raise ConfigError(f"training.trl.{option} is set by algorithm.{own[option]}; use that")


def _check_samples_are_fresh(config: RunConfig) -> None:
    """RLOO takes whatever it trains on for samples of the present weights; GRPO corrects for older
    ones. That is for the user to decide."""
    if config.training.importance_sampling_correction is False:
        return
    fresh = {"staleness": 0, "sync_weights_every": 1}
    for key, value in fresh.items():
        chosen = getattr(config.rollout, key)
        if chosen != value:
            raise ConfigError(
                f"rollout.{key} = {chosen}: completions are then sampled with older weights, and "
                f"TRL's RLOO does not correct for that; set it to {value}, or train on them as "
                "they are with training.importance_sampling_correction = false"
            )
