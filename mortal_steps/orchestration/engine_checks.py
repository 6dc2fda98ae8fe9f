"""Checks that an engine can do what a configuration asks for, by its entry in `config.engines`."""

from __future__ import annotations

from mortal_steps.config import RunConfig
from mortal_steps.config.engines import ALWAYS_THERE, ENGINES
from mortal_steps.errors import ConfigError


def check_engine(config: RunConfig) -> None:
    """Raise `ConfigError` unless the engine can sample as the configuration asks."""
    name = config.rollout.engine or ALWAYS_THERE
    highest = ENGINES.entry(name).highest_temperature
    asked = {"rollout": config.rollout.temperature, "evaluation": config.evaluation.temperature}
    for table, temperature in asked.items():
        if temperature > highest:
            raise ConfigError(
                f"{table}.temperature = {temperature:g}: {name} accepts at most {highest:g}; "
                f"lower it, or use rollout.engine = {ALWAYS_THERE!r}"
            )
    if config.rollout.sleep_while_training and not ENGINES.entry(name).sleeps:
        raise ConfigError(
            f"rollout.sleep_while_training = true: {name} does not give its memory back. Leave it "
            'out, or use rollout.engine = "vllm"'
        )
    if config.rollout.seeds == "engine" and not ENGINES.entry(name).one_seed:
        raise ConfigError(
            f'rollout.seeds = "engine": {name} gives each completion a seed of its own. Leave '
            'rollout.seeds at "request", or use rollout.engine = "vllm"'
        )
    for option in ENGINES.entry(name).spread_options:
        size = config.rollout.engine_options.get(option, 1)
        if size != 1 and config.shares_weights:
            raise ConfigError(
                f"rollout.weight_sync = 'direct', and rollout.engine_options.{option} = {size}: "
                f"the processes of {name} would each get a copy of all weights through a pipe. "
                "Leave rollout.weight_sync out; each of them then reads the published files"
            )


def check_adapter(config: RunConfig) -> None:
    """Raise `ConfigError` unless the engine can compute the LoRA adapter beside its base model."""
    name, lora = config.rollout.engine or ALWAYS_THERE, config.training.lora
    adapters = ENGINES.entry(name).adapters
    if not config.training.publishes_adapter:
        return
    if key := config.only_merged:
        raise ConfigError(
            f'training.lora.publish = "adapter": engines do not compute beside a base what {key} '
            'makes of the adapter; leave it out, or write "merged": rollout workers then receive '
            "whole models"
        )
    if adapters is None:
        return  # an engine of the user's own knows what it takes
    merged = (
        'set training.lora.publish = "merged", with which rollout workers receive whole models, or '
        f"rollout.engine = {ALWAYS_THERE!r}"
    )
    if adapters.room_for(lora.r) is None:
        raise ConfigError(
            f"training.lora.r = {lora.r}: {name} takes adapters of rank {adapters.ranks[-1]} or "
            f"less; {merged}"
        )
    if not adapters.embeddings and (found := lora.adapted_embeddings()):
        raise ConfigError(
            f"training.lora.target_modules adapts {found[0]}: {name} takes no adapters of "
            f"embeddings; {merged}"
        )
