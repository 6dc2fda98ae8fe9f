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

import enum
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mortal.trainer.modes import Distributed, Mode, SingleNode
from mortal.trainer.settings import KEYS, RUNS_DIR, flat
from mortal.trainer.trl_names import (
    IN_ARGS,
    OTHER,
    OWN_SERVER,
    SAME,
    SPECIAL,
    key_of,
    refuse_argument,
)
from mortal_steps.config.trl_options import (
    CONFIGS,
    idleness,
    options_of,
    refusal,
)
from mortal_steps.errors import ConfigError

CALLS = "max_tool_calling_iterations"


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
    kind = _kind_of(args)
    _check_once(found, kind)
    found["algorithm"] = found["algorithm"] or _algorithm_of(kind)
    values = {name: _plain(getattr(args, name), name) for name in options_of(kind)}
    holds_out = any(key.startswith("data.eval_") for key, _ in flat(found["config"] or {}))
    if values["eval_strategy"] != "no" and found["eval_dataset"] is None and not holds_out:
        raise ConfigError(
            f"args.eval_strategy = {values['eval_strategy']!r} needs an eval_dataset; give one, or "
            "leave eval_strategy out"
        )
    return _with_options(found, values, _chosen(args, kind))


def repository(args: Any) -> str | None:
    """Return the repository on the hub that TRL's configuration names."""
    return None if args is None else args.hub_model_id or Path(args.output_dir).name


def _kind_of(args: Any) -> str:
    kind = next((k.__name__ for k in type(args).__mro__ if k.__name__ in CONFIGS.values()), None)
    if kind is None:
        raise ConfigError(
            f"args is of type {type(args).__name__}; give TRL's {' or '.join(CONFIGS.values())}, "
            "or write the options as parameters"
        )
    if args.world_size > 1:
        raise ConfigError(
            f"this script runs in {args.world_size} processes, each of which would begin a run; "
            "start it with python, not with accelerate launch or torchrun: a run starts its own "
            "workers"
        )
    return kind


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


def _chosen(args: Any, kind: str) -> set[str]:
    """Return the options that have another value than TRL's default."""
    made = next(k for k in type(args).__mro__ if k.__name__ == kind)
    default = made(use_cpu=args.use_cpu, bf16=args.bf16, fp16=args.fp16)
    found = {n for n in options_of(kind) if getattr(args, n) != getattr(default, n)}
    found |= {name for name in ("use_cpu", "fp16") if getattr(args, name)}
    # On a CPU, TRL's default is bf16, and MORTAL's is not. `do_eval` follows from `eval_strategy`.
    differs = args.use_cpu or args.bf16 == args.fp16
    return (found | {"bf16"} if differs else found - {"bf16"}) - {"do_eval"}


def _with_options(
    found: dict[str, Any], values: dict[str, Any], chosen: set[str]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the parameters with TRL's options. `chosen` are those that a person has set."""
    idle: dict[str, str] = {}
    keys = {SAME[n]: value for n, value in values.items() if n in SAME and value is not None}
    keys |= {OTHER[n]: values[n] for n in OTHER if n in chosen}
    if values["max_completion_length"] is None:
        raise ConfigError("args.max_completion_length = None: name a length in tokens")
    if not values["use_vllm"]:
        for name in [n for n in chosen if n.startswith("vllm_") and "sampling" not in n]:
            keys.pop(OTHER.get(name, name), None)
            idle[name] = "use_vllm is off"
    if CALLS in chosen and not found["tools"] and found["environment_factory"] is None:
        del keys[OTHER[CALLS]]
        idle[CALLS] = "there are no tools"
    keys |= _sizes(values) | _steps(values, chosen, idle)
    found["mode"], engine = _mode(found["mode"], values)
    keys |= engine
    if "output_dir" in chosen:
        found["runs_dir"] = _runs_dir(found["runs_dir"], values["output_dir"])
    if "model_init_kwargs" in chosen:
        keys |= _loading(values["model_init_kwargs"], found, idle)
    found["reward_weights"] = values["reward_weights"]
    for name in sorted(chosen - (SPECIAL - {"bf16"}) - idle.keys()):
        if name.startswith(("vllm_server_", "vllm_group_")):
            idle[name] = OWN_SERVER
        elif reason := idleness(name):
            idle[name] = reason
        elif reason := refusal(name):
            raise ConfigError(f"{name} = {values[name]!r} cannot be set: {reason}")
        else:
            keys[f"training.trl.{name}"] = values[name]
    sentences = tuple(f"{name} changes nothing: {reason}" for name, reason in idle.items())
    asked = {key_of(n) for n in chosen if n != "eval_steps" or values["eval_strategy"] != "no"}
    return _placed(found, keys, asked), sentences


def _sizes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return TRL's size in completions as prompts; raises `ConfigError` for a fraction."""
    rows, each = values["generation_batch_size"], values["num_generations"]
    of = f"num_generations = {each}"
    sizes = {"training.batch_size": _exactly(rows, each, "generation_batch_size", of)}
    if values["steps_per_generation"] != values["gradient_accumulation_steps"]:
        sizes["training.trl.steps_per_generation"] = values["steps_per_generation"]
    return sizes


def _steps(values: Mapping[str, Any], chosen: set[str], idle: dict[str, str]) -> dict[str, Any]:
    """Return counts of batches, from TRL's counts of optimizer updates. A `save_strategy` that does
    not follow steps is added to `idle`. Raises `ConfigError` for a count that ends within a batch,
    and for evaluations that do not follow steps."""
    pieces, accumulated = values["steps_per_generation"], values["gradient_accumulation_steps"]
    updates = max(1, pieces * values["num_iterations"] // accumulated)

    def batches(name: str, count: Any) -> int:
        if not isinstance(count, int):
            raise ConfigError(f"args.{name} = {count!r}: write a whole number of optimizer updates")
        per = f"the {updates} optimizer updates of a batch (steps_per_generation x num_iterations"
        return _exactly(count, updates, f"args.{name}", f"{per} / gradient_accumulation_steps)")

    found: dict[str, Any] = {"training.max_steps": -1, "evaluation.eval_steps": 0}
    if values["max_steps"] > 0:
        found["training.max_steps"] = batches("max_steps", values["max_steps"])
    if values["save_strategy"] != "steps":
        idle["save_strategy"] = "checkpoints are what a run goes on from; see [checkpoints]"
    elif "save_steps" in chosen:
        found["checkpoints.save_steps"] = batches("save_steps", values["save_steps"])
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
        found["evaluation.eval_steps"] = batches("eval_steps", every)
        found["evaluation.on_start"] = values["eval_on_start"]
    return found


def _exactly(count: int, part: int, counted: str, parts: str) -> int:
    if count % part:
        raise ConfigError(f"{counted} = {count} does not divide by {parts}")
    return count // part


def _mode(mode: Mode | None, values: Mapping[str, Any]) -> tuple[Mode, dict[str, Any]]:
    """Return where it samples, and keys for the engine that the mode leaves open."""
    vllm = values["use_vllm"]
    apart = vllm and values["vllm_mode"] == "server"
    mode = mode or (Distributed() if apart else SingleNode(use_vllm=vllm))
    if isinstance(mode, SingleNode):
        if vllm and not mode.use_vllm:
            raise ConfigError(
                "MortalTrainer(mode=SingleNode(...)) samples with transformers, and use_vllm is "
                "on; write SingleNode(use_vllm=True)"
            )
        return mode, {}
    return mode, {"rollout.engine": "vllm" if vllm else "transformers"}


def _runs_dir(runs_dir: str | Path, output_dir: str) -> str:
    if str(runs_dir) != RUNS_DIR:
        raise ConfigError(
            f"MortalTrainer(runs_dir={str(runs_dir)!r}): output_dir = {output_dir!r} is the folder "
            "of runs already; leave out one of the two"
        )
    return output_dir


def _loading(given: Any, found: dict[str, Any], idle: dict[str, str]) -> dict[str, Any]:
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


def _plain(value: Any, name: str) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(inner, name) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, name) for inner in value]
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return str(value).removeprefix("torch.")
    return value


def _placed(found: dict[str, Any], keys: Mapping[str, Any], asked: set[str]) -> dict[str, Any]:
    """Return the parameters with these keys: those of parameters there, the others in `config`."""
    parameters = {key: name for name, key in KEYS.items()}
    own = dict(flat(found["config"] or {}))
    for table in {key.rpartition(".")[0] for key in keys} & own.keys():
        if isinstance(own[table], Mapping):
            own |= {f"{table}.{name}": value for name, value in own.pop(table).items()}
    for key, value in keys.items():
        if (name := parameters.get(key)) is not None:
            if found[name] not in (None, value):
                raise ConfigError(
                    f"MortalTrainer({name}={found[name]!r}): TRL's options ask for {value!r}; "
                    "leave out one of the two"
                )
            found[name] = value
        elif key not in own:
            own[key] = value
        elif key in asked and own[key] != value:
            raise ConfigError(
                f"MortalTrainer(config={{{key!r}: {own[key]!r}}}): TRL's options ask for "
                f"{value!r}; leave out one of the two"
            )
    found["config"] = own
    return found
