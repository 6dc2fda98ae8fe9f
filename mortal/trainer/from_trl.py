"""Translates what TRL's trainers take, a `GRPOConfig` above all, into what `MortalTrainer` takes.

    MortalTrainer(args=GRPOConfig(...))     all of its options count, TRL's defaults too
    MortalTrainer(temperature=0.7)          an option of TRL's by name: it alone counts

TRL is not imported here. Whoever gives a `GRPOConfig` has imported it; the names of options are
known without it.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mortal.trainer.modes import Distributed, Mode, SingleNode
from mortal.trainer.settings import KEYS, flat
from mortal.trainer.trl_counts import IN_BATCHES, SIZES, STEPS, named_steps, sizes_of, steps_of
from mortal_steps.config.field_metadata import trl_option
from mortal_steps.config.loader import every_key
from mortal_steps.config.trl_options import (
    CONFIGS,
    TRAINER_ARGUMENTS,
    idleness,
    options_of,
    refusal,
)
from mortal_steps.errors import ConfigError
from mortal_steps.extensions import nearest

SAME: Mapping[str, str] = {
    option: key for key, field in every_key() if (option := trl_option(field))
} | {
    "num_train_epochs": "training.num_epochs",
    "gradient_accumulation_steps": "training.gradient_accumulation_steps",
}
"""Option of TRL -> the key with its value, for which TRL's default counts, too."""
OTHER: Mapping[str, str] = {
    "top_p": "rollout.top_p",
    "top_k": "rollout.top_k",
    "min_p": "rollout.min_p",
    "shuffle_dataset": "data.shuffle",
    "trust_remote_code": "model.trust_remote_code",
    "report_to": "logging.report_to",
    "run_name": "logging.run_name",
    "project": "logging.project",
    "save_total_limit": "checkpoints.keep_last",
    "eval_on_start": "evaluation.on_start",
    "normalize_advantages": "algorithm.normalize_advantages",
    "reward_clip_range": "algorithm.reward_clip_range",
    "vllm_importance_sampling_correction": "training.importance_sampling_correction",
    "vllm_max_model_length": "model.max_model_len",
    "vllm_enable_sleep_mode": "rollout.sleep_while_training",
    "vllm_gpu_memory_utilization": "rollout.engine_options.gpu_memory_utilization",
    "vllm_tensor_parallel_size": "rollout.engine_options.tensor_parallel_size",
    "vllm_model_impl": "rollout.engine_options.model_impl",
}
"""Option of TRL -> the key with its value, if the option is set."""
SPECIAL = frozenset(
    {*SIZES, *STEPS, *SAME, *OTHER}
    | {"use_vllm", "vllm_mode", "output_dir", "model_init_kwargs", "reward_weights", "bf16"}
    | {"resume_from_checkpoint"}
)
"""Options that are translated by name; the rest goes to `[training.trl]`."""
IN_ARGS = (
    *("num_generations", "batch_size", "learning_rate", "max_steps", "num_epochs", "loss_type"),
    *("beta", "epsilon", "scale_rewards", "max_completion_length", "gradient_checkpointing"),
    *("report_to", "reward_weights"),
)
"""Parameters that say what `args` says."""
RUNS_DIR = "runs"
"""Default of `runs_dir`."""
OWN_SERVER = "the rollout workers start vLLM themselves"
GONE: Mapping[str, str] = {
    "tokenizer": "it is called processing_class",
    "ref_model": "the reference model is the model that training begins with; see training.beta",
    "max_prompt_length": "TRL has no such option any more; data.on_long = 'drop' in config leaves "
    "out rows whose prompt is too long",
    "data_collator": "completions are put together as GRPOTrainer does it",
    "compute_metrics": "evaluations score with the reward functions",
    "trust_remote_code": "write config={'model.trust_remote_code': True}",
}
"""Names that are not TRL's, or not any more, and what there is instead."""


def translated(given: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the parameters of a `MortalTrainer` without `args` and `others`, which have become
    other parameters and keys in `config`; and a sentence for each option that changes nothing.

    Raises `ConfigError` for what cannot be translated, and for what is given twice.
    """
    found = {name: value for name, value in given.items() if name not in ("args", "others")}
    args = given["args"]
    if args is None and not given["others"]:
        return found, ()
    others = _options_among(given["others"], found)
    if args is None:
        return _with_options(found, others, chosen=set(others), is_whole=False)
    kind = _kind_of(args)
    _check_once(found, others, kind)
    found["algorithm"] = found["algorithm"] or _algorithm_of(kind)
    values = {name: _plain(getattr(args, name), name) for name in options_of(kind)}
    holds_out = any(key.startswith("data.eval_") for key, _ in flat(found["config"] or {}))
    if values["eval_strategy"] != "no" and found["eval_dataset"] is None and not holds_out:
        raise ConfigError(
            f"args.eval_strategy = {values['eval_strategy']!r} needs an eval_dataset; give one, or "
            "leave eval_strategy out"
        )
    return _with_options(found, values, chosen=_chosen(args, kind), is_whole=True)


def repository(args: Any) -> str | None:
    """Return the repository on the hub that TRL's configuration names."""
    return None if args is None else args.hub_model_id or Path(args.output_dir).name


def _options_among(others: Mapping[str, Any], parameters: Iterable[str]) -> dict[str, Any]:
    """Return the options of TRL's configurations among further keyword arguments. Raises
    `ConfigError` for arguments of its trainers, and for any other name."""
    known = {name for kind in CONFIGS.values() for name in options_of(kind)}
    for name, value in others.items():
        if instead := TRAINER_ARGUMENTS.get(name):
            if not _is_empty(value):
                raise ConfigError(f"MortalTrainer({name}=...): {instead}")
        elif name not in known:
            near = nearest(name, [*parameters, *known], cutoff=0.75)
            hint = f"; did you mean {near}?" if near else ""
            hint = f": {GONE[name]}" if name in GONE else hint
            raise ConfigError(
                f"MortalTrainer({name}=...): neither MortalTrainer nor TRL's GRPOTrainer and "
                f"GRPOConfig have it{hint}"
            )
    options = {name: value for name, value in others.items() if name in known}
    return {name: _plain(value, name) for name, value in options.items() if value is not None}


def _is_empty(value: Any) -> bool:
    """Return whether an argument of a trainer asks for nothing, such as `optimizers=(None,
    None)`."""
    return not any(part is not None for part in value) if isinstance(value, tuple) else not value


def _kind_of(args: Any) -> str:
    """Return the configuration of TRL's that `args` is."""
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


def _check_once(found: Mapping[str, Any], others: Mapping[str, Any], kind: str) -> None:
    twice = [*others, *(name for name in IN_ARGS if found[name] is not None)]
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
    found: dict[str, Any], values: dict[str, Any], chosen: set[str], is_whole: bool
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the parameters with options of TRL's. `chosen` are those that a person has set;
    `is_whole` is whether the others have TRL's defaults."""
    idle: dict[str, str] = {}
    keys = {SAME[n]: value for n, value in values.items() if n in SAME and value is not None}
    keys |= {OTHER[n]: values[n] for n in OTHER if n in chosen}
    if is_whole and values["max_completion_length"] is None:
        raise ConfigError("args.max_completion_length = None: name a length in tokens")
    if is_whole and not values["use_vllm"]:
        for name in [n for n in chosen if n.startswith("vllm_") and "sampling" not in n]:
            keys.pop(OTHER.get(name, name), None)
            idle[name] = "use_vllm is off"
    keys |= sizes_of(values, keys, found)
    if is_whole:
        keys |= steps_of(values, chosen, idle)
    else:
        keys |= named_steps(values, idle)
    if "vllm_mode" in values and "use_vllm" not in values:
        idle["vllm_mode"] = "use_vllm is off"
    if "use_vllm" in values:
        found["mode"], engine = _mode(found["mode"], values)
        keys |= engine
    if "output_dir" in chosen:
        found["runs_dir"] = _runs_dir(found["runs_dir"], values["output_dir"])
    if "model_init_kwargs" in chosen:
        keys |= _loading(values["model_init_kwargs"], found, idle)
    if values.get("reward_weights") is not None:
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
    said = tuple(f"{name} changes nothing: {reason}" for name, reason in idle.items())
    asked = {_key(n) for n in chosen if n != "eval_steps" or values.get("eval_strategy") != "no"}
    return _placed(found, keys, asked), said


def _mode(mode: Mode | None, values: Mapping[str, Any]) -> tuple[Mode, dict[str, Any]]:
    """Return where it samples, and keys for the engine that the mode leaves open."""
    vllm = values["use_vllm"]
    apart = vllm and values.get("vllm_mode") == "server"
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
    """Return a value as TOML has it."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(inner, name) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, name) for inner in value]
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return str(value).removeprefix("torch.")
    return value


def _key(option: str) -> str:
    return {**IN_BATCHES, **SAME, **OTHER}.get(option, f"training.trl.{option}")


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
