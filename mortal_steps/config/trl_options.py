"""Options of TRL's configurations: their names, and those that a run cannot have or that do nothing
here, each with the reason.

The names are read from TRL's source, because importing TRL takes seconds.
"""

import ast
import functools
import importlib.util
import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from mortal_steps.errors import ConfigError
from mortal_steps.extensions import nearest

CONFIGS: Mapping[str, str] = {"grpo": "GRPOConfig", "rloo": "RLOOConfig"}
"""Algorithm that learns from rewards of completions -> its configuration in TRL."""
CONFIGS_WITHOUT_REWARDS: Mapping[str, str] = {
    "distillation": "DistillationConfig",
    "opd": "ServerDistillationConfig",
}
"""Algorithm that learns from completions in another way -> its configuration in TRL."""
CONFIGS_OF_ROWS: Mapping[str, str] = {
    "sft": "SFTConfig",
    "dpo": "DPOConfig",
    "kto": "KTOConfig",
    "reward": "RewardConfig",
}
"""Algorithm that learns from rows of a dataset -> its configuration in TRL."""
SOURCES: Mapping[str, tuple[str, str]] = {
    "_BaseConfig": ("trl", "trainer/base_config.py"),
    "ServerDistillationConfig": (
        "trl",
        "experimental/server_distillation/server_distillation_config.py",
    ),
    "TrainingArguments": ("transformers", "training_args.py"),
}
"""Class -> package and file that it is in; others are in a file of TRL's named after them."""

BY_RANKS = "training.ranks and training.sharding say on how many GPUs is trained, and how"
NO_LOADER = "the actor has no data loader: it trains on recorded batches"
OUR_EVALUATION = "[evaluation] decides how the held-out problems are scored"
OUR_CHECKPOINTS = "[checkpoints] decides what is kept; `mortal resume` and `mortal fork` go on"
OUR_BEST = (
    "checkpoints.keep_best keeps the checkpoint with the highest reward of an evaluation; name "
    "what should count in evaluation.functions"
)
SAMPLED_ELSEWHERE = "the rollout workers sample; see [rollout] and rollout.engine_options"
NO_SUCH_FILTER = (
    "tokens are drawn by temperature, top_p, top_k and min_p alone (see [rollout]), whose "
    "log-probabilities are recorded as they are"
)
EVERY_STEP = "every train step is recorded"
NO_EVALUATION = "it follows evaluations inside TRL's own loop, and there are none"

REFUSED: Mapping[str, str | None] = {
    "load_best_model_at_end": "final/ is the model after the last step, and checkpoints.keep_best "
    "also keeps the best checkpoint, for `mortal serve --step N` and `mortal fork --at-step N`",
    "eval_on_start": "use evaluation.on_start",
    "deepspeed": BY_RANKS,
    "fsdp": BY_RANKS,
    "parallelism_config": BY_RANKS,
    "shuffle_dataset": "use data.shuffle; each epoch has an order of its own",
    "generation_kwargs": NO_SUCH_FILTER,
    "repetition_penalty": NO_SUCH_FILTER,
    "dataloader_persistent_workers": NO_LOADER,
    "dataloader_prefetch_factor": NO_LOADER,
    "teacher_model_*": "use [algorithm.teacher] or, for opd, [algorithm.teachers.NAME]",
    "enable_jit_checkpoint": "a run that is stopped saves its state by itself, in checkpoints/",
    "vllm_importance_sampling_*": None,
    "vllm_*": SAMPLED_ELSEWHERE,
}
"""Options of TRL without a key of ours that a run cannot choose, and why; None: it can."""

IDLE: Mapping[str, str | None] = {
    "logging_steps": EVERY_STEP,
    "logging_strategy": EVERY_STEP,
    "logging_first_step": EVERY_STEP,
    "log_completions*": "completions are in the run directory, steps/*/generations-*.parquet",
    "auto_find_batch_size": "a run has the batch size that it begins with",
    "include_num_input_tokens_seen": "TRL counts them in any case: `num_tokens` in metrics.jsonl",
    "disable_tqdm": "workers draw no progress bars",
    "push_to_hub": "the trained model is written to final/; a trainer's push_to_hub() uploads it",
    "report_to": "use logging.report_to: the flow reports what is committed, not the trainer",
    "do_*": "train() trains, and [evaluation] decides what is evaluated",
    "use_cpu": "the machine of the actor decides",
    "use_transformers_continuous_batching": SAMPLED_ELSEWHERE,
    "use_transformers_paged": SAMPLED_ELSEWHERE,
    "transformers_continuous_batching_config": SAMPLED_ELSEWHERE,
    "cache_implementation": SAMPLED_ELSEWHERE,
    "remove_unused_columns": "reward functions get every column",
    "num_generations_eval": OUR_EVALUATION,
    "per_device_eval_batch_size": OUR_EVALUATION,
    "eval_*": OUR_EVALUATION,
    "batch_eval_metrics": OUR_EVALUATION,
    "include_for_metrics": OUR_EVALUATION,
    "prediction_loss_only": OUR_EVALUATION,
    "*_full_eval": OUR_EVALUATION,
    "metric_for_best_model": OUR_BEST,
    "greater_is_better": OUR_BEST,
    "save_*": OUR_CHECKPOINTS,
    "resume_from_checkpoint": OUR_CHECKPOINTS,
    "restore_callback_states_from_checkpoint": OUR_CHECKPOINTS,
    "ignore_data_skip": "a run that goes on takes the rows that come next",
    "skip_memory_metrics": "TRL tells them where its own loop ends, and a run takes single steps",
    "hub_*": "the trained model is written to final/",
    "run_name": "use logging.run_name",
    "project": "use logging.project",
    "trackio_*": "use logging.report_to, and trackio's own environment variables",
    "log_multimodal": "see logging.sample_steps",
    "log_unique_prompts": "see logging.sample_steps",
    "num_completions_to_print": "see logging.sample_steps",
    "trust_remote_code": "use model.trust_remote_code",
    "fsdp_config": BY_RANKS,
    "ddp_*": BY_RANKS,
    "dataloader_*": NO_LOADER,
    "train_sampling_strategy": NO_LOADER,
}
"""Options of TRL that are taken and change nothing, and why."""

OF_ROWS = (
    *("dataloader_drop_last", "train_sampling_strategy", "length_column_name"),
    *("per_device_eval_batch_size", "eval_packing", "remove_unused_columns", "shuffle_dataset"),
)
"""Options of these that mean something where rows of a dataset are learned."""
IN_ROWS: Mapping[str, str] = {
    OUR_BEST: "checkpoints.keep_best keeps the checkpoint with the lowest loss on held-out rows",
    NO_LOADER: "the actor reads the prepared rows itself",
    OUR_EVALUATION: "held-out rows are judged by TRL's loss and metrics, as [evaluation] says",
}
"""Reason in `IDLE` -> the reason where rows of a dataset are learned, if that is another."""
UNLIMITED = {"max_length": "none", "pad_to_multiple_of": "none"}
"""Options of which no value means something: in TOML, which has none, this text stands for it."""

REFUSED_VALUES = {
    ("lr_scheduler_type", "reduce_lr_on_plateau"): NO_EVALUATION,
    ("lr_scheduler_type", "greedy"): NO_EVALUATION,
}

TRAINER_ARGUMENTS = {
    "model": "use model.name_or_path",
    "reward_funcs": "use rewards.functions",
    "reward_processing_classes": "use `tokenizer` of a reward model in [[rewards.terms]]",
    "teacher_model": "use algorithm.teacher",
    "train_dataset": "use data.source",
    "eval_dataset": "use data.eval_source",
    "processing_class": "the tokenizer is the model's",
    "callbacks": "the actor takes none; a tracker follows a run from outside (logging.report_to)",
    "optimizers": "use training.trl.optim",
    "peft_config": "use training.use_lora and [training.lora]",
    "quantization_config": "use [model.quantization]",
    "rollout_func": "the rollout workers sample, or a batch source of your own (rollout.source)",
    "tools": "use environment.tools",
    "environment_factory": "use environment.factory",
}
"""Arguments of TRL's trainers, which are no options of their configurations, and what there is
instead."""

LOADING = {
    "dtype": "use model.dtype",
    "torch_dtype": "use model.dtype",
    "trust_remote_code": "use model.trust_remote_code",
    "revision": "use model.revision",
    "device_map": BY_RANKS,
    "tp_plan": BY_RANKS,
    "quantization_config": "use [model.quantization]",
    "load_in_8bit": "use [model.quantization]",
    "load_in_4bit": "use [model.quantization]",
}
"""Names in TRL's `model_init_kwargs`, arguments of `from_pretrained`, that a run cannot choose."""

REPEATABLE_ATTENTION = ("sdpa", "eager")
"""Implementations of attention whose gradients are the same each time."""


@functools.cache
def options_of(kind: str) -> tuple[str, ...]:
    """Names of the options that a configuration of TRL's has, such as `GRPOConfig`. Empty where TRL
    or transformers is not installed."""
    own_file = ("trl", f"trainer/{kind.removesuffix('Config').lower()}_config.py")
    package, file = SOURCES.get(kind, own_file)
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        return ()
    module = ast.parse((Path(found.origin).parent / file).read_text(encoding="utf-8"))
    made = next(n for n in module.body if isinstance(n, ast.ClassDef) and n.name == kind)
    inherited = (options_of(base.id) for base in made.bases if isinstance(base, ast.Name))
    own = (_option(statement) for statement in made.body)
    return tuple(dict.fromkeys([*(n for names in inherited for n in names), *filter(None, own)]))


def _option(statement: ast.stmt) -> str | None:
    """Return the name of a dataclass field that the constructor takes, if this defines one."""
    if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
        return None
    keywords = statement.value.keywords if isinstance(statement.value, ast.Call) else []
    private = any(k.arg == "init" and ast.unparse(k.value) == "False" for k in keywords)
    return None if private else statement.target.id


def config_of(algorithm: str) -> str | None:
    """Return the configuration of TRL's that an algorithm of MORTAL's takes, if it takes one."""
    return {**CONFIGS, **CONFIGS_WITHOUT_REWARDS, **CONFIGS_OF_ROWS}.get(algorithm)


def check_names(chosen: Mapping[str, Any], kind: str) -> None:
    """Raise `ConfigError` for options that TRL's configuration lacks or a run cannot have."""
    wrong = [reason for name in chosen if (reason := _mistake(name, chosen[name], kind))]
    if wrong:
        raise ConfigError("\n  ".join(wrong))


def _mistake(name: str, value: Any, kind: str) -> str | None:
    """Return what is wrong with an option."""
    key, known = f"training.trl.{name}", options_of(kind)
    if instead := TRAINER_ARGUMENTS.get(name):
        return f"{key} is an argument of TRL's trainer, not an option: {instead}"
    if known and name not in known:
        if name in options_of("GRPOConfig"):
            method = kind.removesuffix("Config")
            return (
                f"{key} is an option of TRL's GRPO, and {method} has none like it; leave "
                "it out, or set algorithm.type = 'grpo'"
            )
        near = nearest(name, known, cutoff=0.75)
        hint = f"; did you mean training.trl.{near}?" if near else ""
        return f"{key}: TRL's {kind} has no such option{hint}"
    if reason := refusal(name, kind):
        return f"{key} cannot be set: {reason}"
    if isinstance(value, str) and (name, value) in REFUSED_VALUES:
        return f"{key} = {value!r} cannot be used: {REFUSED_VALUES[name, value]}"
    return None


def loading_options(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """`training.trl.model_init_kwargs`. Raises `ConfigError` for an argument of `from_pretrained`
    that a run cannot choose, and as `table_in`."""
    options = table_in(chosen, "model_init_kwargs", "{attn_implementation = ...}")
    for name in options:
        if reason := LOADING.get(name):
            raise ConfigError(f"training.trl.model_init_kwargs.{name} cannot be set: {reason}")
    return options


def table_in(chosen: Mapping[str, Any], name: str, example: str) -> dict[str, Any]:
    """Return an option that is a table, or JSON of one, as TRL takes it; raise `ConfigError` for
    another one."""
    key, given = f"training.trl.{name}", chosen.get(name) or {}
    try:
        options = json.loads(given) if isinstance(given, str) else given
    except ValueError as error:
        raise ConfigError(f"{key} = {given!r} is not JSON: {error}") from None
    if not isinstance(options, Mapping):
        raise ConfigError(f"{key} = {given!r}: write a table, such as {example}")
    return dict(options)


def refusal(name: str, kind: str = "GRPOConfig") -> str | None:
    """Why a run cannot choose an option of a configuration of TRL's; None if it can."""
    return None if _is_of_rows(name, kind) else _reason(REFUSED, name)


def idleness(name: str, kind: str = "GRPOConfig") -> str | None:
    """Why an option of a configuration of TRL's changes nothing; None if it does."""
    if _is_of_rows(name, kind):
        return None
    reason = _reason(IDLE, name)
    if reason is None or kind not in CONFIGS_OF_ROWS.values():
        return reason
    return IN_ROWS.get(reason, reason)


def _is_of_rows(name: str, kind: str) -> bool:
    return name in OF_ROWS and kind in CONFIGS_OF_ROWS.values()


def unrepeatable_options(chosen: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sentence for each option whose steps may not repeat to the bit."""
    said = "a run that is killed and resumed may not end with the same bits"
    found = []
    if chosen.get("torch_compile"):
        found.append(
            f"training.trl.torch_compile = true: on a GPU, kernels are chosen by measuring; {said}"
        )
    attention = loading_options(chosen).get("attn_implementation", "sdpa")
    if attention not in REPEATABLE_ATTENTION:
        found.append(
            f"training.trl.model_init_kwargs.attn_implementation = {attention!r}: of attention on "
            f"a GPU, only {' and '.join(REPEATABLE_ATTENTION)} are known to repeat; {said}"
        )
    return tuple(found)


def _reason(table: Mapping[str, str | None], name: str) -> str | None:
    return next((reason for entry, reason in table.items() if fnmatchcase(name, entry)), None)
