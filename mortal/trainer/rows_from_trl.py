"""Turns a configuration of TRL's in which a step is an optimizer update, such as `SFTConfig`, into
keys.

All of its options count, TRL's defaults too:

    per_device_train_batch_size = 2, gradient_accumulation_steps = 4
        training.batch_size = 8 rows a step, training.gradient_accumulation_steps = 4
"""

import importlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from mortal.trainer.trl_names import OTHER, SAME
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
from mortal_steps.config.trl_options import (
    CONFIGS_OF_ROWS,
    UNLIMITED,
    idleness,
    options_of,
    refusal,
)
from mortal_steps.errors import ConfigError
from mortal_steps.policy.algorithms.table import ALGORITHMS

TRANSLATED = frozenset(
    {"per_device_train_batch_size", "max_steps", "save_strategy", "save_steps", "eval_strategy"}
    | {"eval_steps", "eval_on_start", "output_dir", "model_init_kwargs", "resume_from_checkpoint"}
)
"""Options that become keys in another way than by their value alone."""
SHUFFLES = "data.shuffle"
"""A key that means something else than TRL's option where rows are learned."""
COUNTED = {
    "save_steps": "checkpoints.save_steps",
    "eval_steps": "evaluation.eval_steps",
    "max_steps": "training.max_steps",
    "per_device_train_batch_size": "training.batch_size",
}
"""Option that counts steps or rows -> its key."""


def default_args(kind: str) -> Any:
    """Return TRL's configuration as TRL makes it where a script gives none. Whether matrices are
    multiplied in bfloat16 is left to the run's machine."""
    return getattr(importlib.import_module("trl"), kind)(bf16=False)


@dataclass(kw_only=True, slots=True)
class Known:
    """What a trainer of its own kind knows of TRL's options."""

    keys: dict[str, Any] = field(default_factory=dict)
    idle: dict[str, str] = field(default_factory=dict)
    """Option that changes nothing -> the reason."""
    options: Collection[str] = ()
    """Those that it has read."""


def with_options(
    given: Mapping[str, Any],
    args: Any,
    *,
    kind: str,
    algorithm: str,
    origin: str,
    read: Callable[[dict[str, Any], Mapping[str, Any], set[str]], Known] | None = None,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the parameters with what `args` says, of which most becomes keys in `config`; and a
    sentence for each option that changes nothing. `read` is given the parameters, which it may
    change, the values of all options, and the names of those that a person has set. Raises
    `ConfigError` for what a run cannot have."""
    found, is_given = dict(given), args is not None
    args = args if is_given else default_args(kind)
    kind_of(args, [kind])
    values = plain_values(args, kind)
    chosen = chosen_options(args, kind) if is_given else set()
    check_held_out(values, found)
    same = _same(kind, algorithm)
    other = _others(kind)
    known = read(found, values, chosen) if read else Known()
    idle = known.idle
    keys = {key: _value(name, values[name]) for name, key in same.items()}
    keys |= {other[name]: values[name] for name in other if name in chosen and name not in idle}
    keys |= known.keys
    keys |= _sizes(values) | steps_keys(values, chosen, idle, whole_updates)
    if "output_dir" in chosen:
        found["runs_dir"] = runs_dir_of(found["runs_dir"], values["output_dir"], origin)
    if "model_init_kwargs" in chosen:
        keys |= loading_keys(values["model_init_kwargs"], found, idle)
    _check(values)
    read_already = {*TRANSLATED, *known.options, *same, *other, *idle}
    for name in sorted(chosen - read_already):
        if reason := idleness(name, kind):
            idle[name] = reason
        elif reason := refusal(name, kind):
            raise ConfigError(f"{name} = {values[name]!r} cannot be set: {reason}")
        elif name != "data_seed" or values[name] != values["seed"]:
            keys[f"training.trl.{name}"] = _value(name, values[name])
    sentences = tuple(f"{name} changes nothing: {reason}" for name, reason in idle.items())
    evaluates = values["eval_strategy"] != "no"
    by_person = [name for name in chosen if name != "eval_steps" or evaluates]
    asked = {key_of(name, kind=kind, algorithm=algorithm) for name in by_person}
    return placed(found, keys, asked, parameters={}, origin=origin), sentences


def key_of(option: str, *, kind: str, algorithm: str) -> str:
    """Return the key that an option of TRL's becomes."""
    keys = {**COUNTED, **_others(kind), **_same(kind, algorithm)}
    return keys.get(option, f"training.trl.{option}")


def _same(kind: str, algorithm: str) -> dict[str, str]:
    """Return option of TRL -> the key with its value, for which TRL's default counts, too."""
    settings: Collection[str] = ALGORITHMS.load(algorithm).model_fields
    known = options_of(kind)
    own = {name: f"algorithm.{name}" for name in settings if name in known}
    return {name: key for name, key in SAME.items() if name in known} | own


def _others(kind: str) -> dict[str, str]:
    """Return option of TRL -> the key with its value, if the option is set."""
    known = options_of(kind)
    left_out = {SHUFFLES} if kind in CONFIGS_OF_ROWS.values() else set()
    return {name: key for name, key in OTHER.items() if name in known and key not in left_out}


def _sizes(values: Mapping[str, Any]) -> dict[str, Any]:
    pieces = values["gradient_accumulation_steps"]
    return {"training.batch_size": values["per_device_train_batch_size"] * pieces}


def _value(name: str, value: Any) -> Any:
    """Return the value as a TOML file has it: a loss by its name, no limit as a word."""
    if isinstance(value, list) and len(value) == 1 and name == "loss_type":
        return value[0]
    return UNLIMITED.get(name) if value is None else value


def _check(values: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for evaluations that TRL would begin later."""
    if values["eval_delay"]:
        raise ConfigError(
            f"eval_delay = {values['eval_delay']!r}: evaluations take place every eval_steps steps "
            "from the beginning; leave it out"
        )
