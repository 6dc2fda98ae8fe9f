"""From the parameters of `DistillationTrainer`, and TRL's options, to a configuration."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mortal.trainer.face import EXCLUDE, Face, checked_runs_dir
from mortal.trainer.objects.datasets import eval_keys, source_of
from mortal.trainer.objects.models import (
    lora_settings,
    model_settings,
    quantization_settings,
    teacher_settings,
)
from mortal.trainer.rows_from_trl import Known
from mortal.trainer.rows_settings import ARGUMENTS as OF_ALL
from mortal.trainer.sampling_from_trl import idle_in_sampling, mode_and_engine
from mortal.trainer.settings import checked_mode
from mortal_steps.errors import ConfigError

ORIGIN = "DistillationTrainer"
KIND = "DistillationConfig"
ALGORITHM = "distillation"
JUDGES = "evaluation.functions"
FACE = Face(
    name=ORIGIN,
    keys={"backend": "compute.backend", "run_id": "run_id"},
    also={
        "model": "model.name_or_path",
        "teacher_model": "algorithm.teacher",
        "train_dataset": "data.source",
        "eval_dataset": "data.eval_source",
        "runs_dir": "runs_dir",
    },
    algorithms=[ALGORITHM],
)
ARGUMENTS: Mapping[str, str] = {
    **{name: OF_ALL[name] for name in ("callbacks", "optimizers")},
    "tools": "distillation trains on single turns; leave it out",
}
"""Arguments of TRL's trainer that a run cannot have, and what there is instead."""
GONE: Mapping[str, str] = {
    "tokenizer": "it is called processing_class",
    "ref_model": "the model that is learned from is called teacher_model",
    "reward_funcs": "nothing is learned from rewards; held-out problems are scored by "
    f"config={{{JUDGES!r}: ['file.py:function']}}",
    "data_collator": "completions are put together as TRL's DistillationTrainer does it",
}
"""Names that are not TRL's, and what there is instead."""


def read_options(found: dict[str, Any], values: Mapping[str, Any], chosen: set[str]) -> Known:
    """Read the options about the teacher and about sampling; see `rows_from_trl.with_options`."""
    if values["max_completion_length"] is None:
        raise ConfigError("args.max_completion_length = None: name a length in tokens")
    idle = idle_in_sampling(found, values, chosen)
    found["mode"], keys = mode_and_engine(found, values, ORIGIN)
    keys |= _teacher_keys(found, values, idle)
    teachers = [name for name in values if name.startswith("teacher_model_")]
    return Known(keys=keys, idle=idle, options=[*teachers, "use_vllm", "vllm_mode"])


def decided_keys(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that follow from the class, the mode, and parameters that may be objects.
    Raises `ConfigError`, and the errors of the modules in `objects`."""
    runs_dir, adapter = checked_runs_dir(given["runs_dir"], ORIGIN), given["peft_config"]
    keys: dict[str, Any] = {
        "algorithm.type": ALGORITHM,
        "runs_dir": runs_dir,
        **checked_mode(given["mode"]).settings(),
        **model_settings(
            given["model"],
            given["processing_class"],
            runs_dir,
            has_adapter=adapter is not None,
        ),
        **teacher_settings(given["teacher_model"], runs_dir),
    }
    if adapter is not None:
        keys |= lora_settings(adapter)
    if given["quantization_config"] is not None:
        keys |= quantization_settings(given["quantization_config"])
    if given["train_dataset"] is None:
        raise ConfigError(
            f"{ORIGIN}: train_dataset is None; give rows with a column `prompt`, or a dataset's "
            "name"
        )
    keys["data.source"] = source_of(given["train_dataset"], runs_dir, "train_dataset")
    if given["eval_dataset"] is not None:
        if not given["config"].get(JUDGES):
            raise ConfigError(
                f"{ORIGIN}(eval_dataset=...): held-out problems are sampled, and nothing scores "
                f"them; write config={{{JUDGES!r}: ['file.py:function']}}, or leave it out"
            )
        keys |= eval_keys(given["eval_dataset"], runs_dir)
        keys[EXCLUDE] = False  # as TRL's trainer, which trains on all of train_dataset
    return keys


def _teacher_keys(
    found: dict[str, Any], values: Mapping[str, Any], idle: dict[str, str]
) -> dict[str, Any]:
    """Return how the teacher is loaded, and make `found` name it. Raises `ConfigError`."""
    named = values["teacher_model_name_or_path"]
    if found["teacher_model"] is None:
        found["teacher_model"] = named
    teacher = found["teacher_model"]
    if teacher is None:
        raise ConfigError(f"{ORIGIN}: teacher_model is None; give the model to learn from")
    if named not in (None, str(teacher)):
        raise ConfigError(
            f"{ORIGIN}(teacher_model=...): args.teacher_model_name_or_path = {named!r} is another "
            "one; leave out one of the two"
        )
    given = values["teacher_model_init_kwargs"] or {}
    loading = dict(json.loads(given) if isinstance(given, str) else given)
    if not isinstance(teacher, str | Path):
        if loading:
            idle["teacher_model_init_kwargs"] = "the teacher is an object, which is loaded already"
        return {}
    dtypes = [loading.pop(name, None) for name in ("dtype", "torch_dtype")]
    # As TRL leaves it to transformers, where nobody names one.
    keys: dict[str, Any] = {"algorithm.teacher.dtype": dtypes[0] or dtypes[1] or "auto"}
    revision = loading.pop("revision", None) or values["teacher_model_revision"]
    if revision is not None and not Path(teacher).is_dir():
        keys["algorithm.teacher.revision"] = revision
    if loading.pop("trust_remote_code", values["trust_remote_code"]):
        keys["algorithm.teacher.trust_remote_code"] = True
    if loading.pop("device_map", None) is not None:
        idle["device_map"] = "the run places its workers itself"
    if loading:
        raise ConfigError(
            f"teacher_model_init_kwargs = {loading!r}: a teacher is loaded with dtype, revision "
            "and trust_remote_code alone; leave the others out"
        )
    return keys
