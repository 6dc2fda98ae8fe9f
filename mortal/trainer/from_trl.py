"""Turns TRL's configuration, a `GRPOConfig` or an `RLOOConfig`, into `MortalTrainer`'s parameters.

All of its options count, TRL's defaults too. TRL counts sizes in completions, and steps in
optimizer updates. A batch here has `training.batch_size` prompts, and a step is one batch:

    per_device_train_batch_size = 2, steps_per_generation = 8, num_generations = 4
        16 completions a batch, so 4 prompts
    gradient_accumulation_steps = 2
        8 / 2 = 4 optimizer updates a batch, so max_steps = 12 are 3 steps here

TRL is not imported here. Whoever gives a `GRPOConfig` has imported it; the names of options are
known without it.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from mortal.trainer.sampling_from_trl import idle_in_sampling, mode_and_engine
from mortal.trainer.settings import KEYS, ORIGIN
from mortal.trainer.trl_names import (
    IN_ARGS,
    OTHER,
    SAME,
    SPECIAL,
    key_of,
    refuse_argument,
)
from mortal.trainer.trl_values import (
    check_held_out,
    chosen_options,
    kind_of,
    loading_keys,
    placed,
    plain_values,
    runs_dir_of,
    steps_keys,
    whole_updates,
)
from mortal_steps.config.trl_options import CONFIGS, idleness, refusal
from mortal_steps.errors import ConfigError


def translated(given: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the parameters of a `MortalTrainer` without `args` and `others`, which have become
    other parameters and keys in `config`; and a sentence for each option that changes nothing.
    Raises `ConfigError` for what cannot be translated, and for what is given twice."""
    found = {name: value for name, value in given.items() if name not in ("args", "others")}
    args = given["args"]
    for name, value in given["others"].items():
        refuse_argument(name, value, found)
    if args is None:
        return found, ()
    kind = kind_of(args, CONFIGS.values(), ", or write the options as parameters")
    _check_once(found, kind)
    found["algorithm"] = found["algorithm"] or _algorithm_of(kind)
    values = plain_values(args, kind)
    check_held_out(values, found)
    return _with_options(found, values, chosen_options(args, kind))


def repository(args: Any) -> str | None:
    """Return the repository on the hub that TRL's configuration names."""
    return None if args is None else args.hub_model_id or Path(args.output_dir).name


def _algorithm_of(kind: str) -> str:
    return next(name for name, config in CONFIGS.items() if config == kind)


def _check_once(found: Mapping[str, Any], kind: str) -> None:
    twice = [name for name in IN_ARGS if found[name] is not None]
    if twice:
        raise ConfigError(
            f"MortalTrainer(args=..., {twice[0]}=...): write {twice[0]} into the {kind}, which "
            "decides it"
        )
    if found["algorithm"] in CONFIGS and CONFIGS[found["algorithm"]] != kind:
        raise ConfigError(
            f"MortalTrainer(args={kind}(...), algorithm={found['algorithm']!r}): args means "
            f"algorithm={_algorithm_of(kind)!r}; leave out one of the two"
        )


def _with_options(
    found: dict[str, Any], values: dict[str, Any], chosen: set[str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the parameters with TRL's options. `chosen` are those that a person has set."""
    idle = idle_in_sampling(found, values, chosen)
    keys = {SAME[n]: value for n, value in values.items() if n in SAME and value is not None}
    keys |= {OTHER[n]: values[n] for n in OTHER if n in chosen and n not in idle}
    if values["max_completion_length"] is None:
        raise ConfigError("args.max_completion_length = None: name a length in tokens")
    keys |= _sizes(values) | steps_keys(values, chosen, idle, partial(_batches, values))
    found["mode"], engine = mode_and_engine(found, values, ORIGIN)
    keys |= engine
    if "output_dir" in chosen:
        found["runs_dir"] = runs_dir_of(found["runs_dir"], values["output_dir"], ORIGIN)
    if "model_init_kwargs" in chosen:
        keys |= loading_keys(values["model_init_kwargs"], found, idle)
    found["reward_weights"] = values["reward_weights"]
    for name in sorted(chosen - (SPECIAL - {"bf16"}) - idle.keys()):
        if reason := idleness(name):
            idle[name] = reason
        elif reason := refusal(name):
            raise ConfigError(f"{name} = {values[name]!r} cannot be set: {reason}")
        else:
            keys[f"training.trl.{name}"] = values[name]
    sentences = tuple(f"{name} changes nothing: {reason}" for name, reason in idle.items())
    asked = {key_of(n) for n in chosen if n != "eval_steps" or values["eval_strategy"] != "no"}
    parameters = {key: name for name, key in KEYS.items()}
    return placed(found, keys, asked, parameters=parameters, origin=ORIGIN), sentences


def _sizes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return TRL's size in completions as prompts; raises `ConfigError` for a fraction."""
    rows, each = values["generation_batch_size"], values["num_generations"]
    of = f"num_generations = {each}"
    sizes = {"training.batch_size": _exactly(rows, each, "generation_batch_size", of)}
    if values["steps_per_generation"] != values["gradient_accumulation_steps"]:
        sizes["training.trl.steps_per_generation"] = values["steps_per_generation"]
    return sizes


def _batches(values: Mapping[str, Any], name: str, count: Any) -> int:
    """Return how many batches so many optimizer updates are; raises `ConfigError` for a count that
    ends within a batch."""
    pieces, accumulated = values["steps_per_generation"], values["gradient_accumulation_steps"]
    updates = max(1, pieces * values["num_iterations"] // accumulated)
    per = f"the {updates} optimizer updates of a batch (steps_per_generation x num_iterations"
    parts = f"{per} / gradient_accumulation_steps)"
    return _exactly(whole_updates(name, count), updates, f"args.{name}", parts)


def _exactly(count: int, part: int, counted: str, parts: str) -> int:
    if count % part:
        raise ConfigError(f"{counted} = {count} does not divide by {parts}")
    return count // part
