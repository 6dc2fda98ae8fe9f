"""Reads TRL's configurations, and turns what is alike in all of them into keys."""

import dataclasses
import enum
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from mortal.trainer.face import RUNS_DIR, flat
from mortal_steps.config.trl_options import options_of
from mortal_steps.errors import ConfigError


def kind_of(args: Any, kinds: Iterable[str], otherwise: str = "") -> str:
    """Return which of these configurations of TRL's it is. Raises `ConfigError` for another, and in
    a script that several processes run. `otherwise`: what else may be done without one."""
    kinds = tuple(kinds)
    kind = next((each.__name__ for each in type(args).__mro__ if each.__name__ in kinds), None)
    if kind is None:
        raise ConfigError(
            f"args is of type {type(args).__name__}; give TRL's {' or '.join(kinds)}{otherwise}"
        )
    if args.world_size > 1:
        raise ConfigError(
            f"this script runs in {args.world_size} processes, each of which would begin a run; "
            "start it with python, not with accelerate launch or torchrun: a run starts its own "
            "workers"
        )
    return kind


def plain_values(args: Any, kind: str) -> dict[str, Any]:
    """Return every option by its name, as a TOML file could hold it."""
    return {name: _plain(getattr(args, name)) for name in options_of(kind)}


def chosen_options(args: Any, kind: str) -> set[str]:
    """Return the options that have another value than TRL's default."""
    made = next(k for k in type(args).__mro__ if k.__name__ == kind)
    default = made(use_cpu=args.use_cpu, bf16=args.bf16, fp16=args.fp16)
    found = {n for n in options_of(kind) if getattr(args, n) != getattr(default, n)}
    found |= {name for name in ("use_cpu", "fp16") if getattr(args, name)}
    # On a CPU, TRL's default is bf16, and MORTAL's is not. `do_eval` follows from `eval_strategy`.
    differs = args.use_cpu or args.bf16 == args.fp16
    return (found | {"bf16"} if differs else found - {"bf16"}) - {"do_eval"}


def check_held_out(values: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for evaluations without rows for them."""
    holds_out = any(key.startswith("data.eval_") for key, _ in flat(found["config"] or {}))
    if values["eval_strategy"] != "no" and found["eval_dataset"] is None and not holds_out:
        raise ConfigError(
            f"args.eval_strategy = {values['eval_strategy']!r} needs an eval_dataset; give one, or "
            "leave eval_strategy out"
        )


def steps_keys(
    values: Mapping[str, Any],
    chosen: set[str],
    idle: dict[str, str],
    in_steps: Callable[[str, Any], int],
) -> dict[str, Any]:
    """Return the keys that count steps; `in_steps` turns an option and its count of optimizer
    updates into one. A `save_strategy` that does not follow steps is added to `idle`. Raises
    `ConfigError` for evaluations that do not follow steps."""
    found: dict[str, Any] = {"training.max_steps": -1, "evaluation.eval_steps": 0}
    if values["max_steps"] > 0:
        found["training.max_steps"] = in_steps("max_steps", values["max_steps"])
    if values["save_strategy"] != "steps":
        idle["save_strategy"] = "checkpoints are what a run goes on from; see [checkpoints]"
    elif "save_steps" in chosen:
        found["checkpoints.save_steps"] = in_steps("save_steps", values["save_steps"])
    if values["eval_strategy"] not in ("no", "steps"):
        raise ConfigError(
            f"eval_strategy = {values['eval_strategy']!r}: evaluations follow steps; write "
            "eval_strategy='steps' with eval_steps"
        )
    if values["eval_strategy"] == "no" and values["eval_on_start"]:
        raise ConfigError(
            "eval_on_start = True: here a run evaluates before its first step if it evaluates at "
            "all; write eval_strategy='steps' with eval_steps, or leave it out"
        )
    if values["eval_strategy"] == "steps":
        every = values["eval_steps"] or values["logging_steps"]
        found["evaluation.eval_steps"] = in_steps("eval_steps", every)
        found["evaluation.on_start"] = values["eval_on_start"]
    return found


def whole_updates(name: str, count: Any) -> int:
    """Return the count; raises `ConfigError` for TRL's parts of a whole run, such as 0.1."""
    if not isinstance(count, int):
        raise ConfigError(f"args.{name} = {count!r}: write a whole number of optimizer updates")
    return count


def runs_dir_of(runs_dir: str | Path, output_dir: str, origin: str) -> str:
    """Return the folder of runs that `output_dir` means; raises `ConfigError` beside another."""
    if str(runs_dir) != RUNS_DIR:
        raise ConfigError(
            f"{origin}(runs_dir={str(runs_dir)!r}): output_dir = {output_dir!r} is the folder "
            "of runs already; leave out one of the two"
        )
    return output_dir


def loading_keys(given: Any, found: dict[str, Any], idle: dict[str, str]) -> dict[str, Any]:
    """Return keys for arguments of `from_pretrained`. A quantization is a parameter."""
    options = dict(json.loads(given) if isinstance(given, str) else given or {})
    model, quantization = found["model"], options.pop("quantization_config", None)
    found["quantization_config"] = found["quantization_config"] or quantization
    if not isinstance(model, str | Path):
        idle["model_init_kwargs"] = "the model is an object, which is loaded already"
        return {}
    keys: dict[str, Any] = {}
    for name in ("dtype", "torch_dtype"):
        if name in options:
            keys["model.dtype"] = options.pop(name) or "auto"
    if options.pop("device_map", None) is not None:
        idle["device_map"] = "the run places its workers itself"
    revision = options.pop("revision", None)
    if revision is not None and not Path(model).is_dir():
        keys["model.revision"] = revision
    if options.pop("trust_remote_code", None):
        keys["model.trust_remote_code"] = True
    rest = {name: value for name, value in options.items() if value is not None}
    return keys | ({"training.trl.model_init_kwargs": rest} if rest else {})


def placed(
    found: dict[str, Any],
    keys: Mapping[str, Any],
    asked: set[str],
    *,
    parameters: Mapping[str, str],
    origin: str,
) -> dict[str, Any]:
    """Return the parameters with these keys: those of `parameters` (key -> parameter) there, the
    others in `config`. What `config` has itself wins, unless TRL's options have `asked` for another
    value: then `ConfigError` is raised."""
    own = dict(flat(found["config"] or {}))
    for table in ({key.rpartition(".")[0] for key in keys} | {"training.trl"}) & own.keys():
        if isinstance(own[table], Mapping):
            own |= {f"{table}.{name}": value for name, value in own.pop(table).items()}
    for key, value in keys.items():
        if (name := parameters.get(key)) is not None:
            if found[name] not in (None, value):
                raise ConfigError(
                    f"{origin}({name}={found[name]!r}): TRL's options ask for {value!r}; "
                    "leave out one of the two"
                )
            found[name] = value
        elif key not in own:
            own[key] = value
        elif key in asked and own[key] != value:
            raise ConfigError(
                f"{origin}(config={{{key!r}: {own[key]!r}}}): TRL's options ask for "
                f"{value!r}; leave out one of the two"
            )
    found["config"] = own
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if type(value).__name__ == "AcceleratorConfig":  # what transformers makes of a dict
        held = dataclasses.asdict(value)
        return {name: _plain(inner) for name, inner in held.items() if inner is not None}
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return str(value).removeprefix("torch.")
    return value
