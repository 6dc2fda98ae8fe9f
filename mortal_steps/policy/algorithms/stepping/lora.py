"""`[training.lora]` as PEFT takes it, and `[model.quantization]` as transformers does."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

from peft import LoraConfig
from pydantic import ConfigDict, TypeAdapter, ValidationError
from transformers import BitsAndBytesConfig
from transformers.utils.import_utils import BITSANDBYTES_MIN_VERSION, is_bitsandbytes_available

from mortal_steps.config import ModelConfig, TrainingConfig
from mortal_steps.config.plain_words import in_plain_words
from mortal_steps.config.training import USUAL_LAYERS
from mortal_steps.errors import ConfigError
from mortal_steps.extensions import nearest

OF_THE_MODEL = "it follows from the run's model"
OF_THE_INPUT = "what it adds depends on the input or on chance, so that no engine has such weights"
OF_DATA = "PEFT computes it from data before training, which TRL does not do"
UNPROVEN = "nobody has compared a run that has it with TRL"

REFUSED = {
    "r": "use training.lora.r",
    "lora_alpha": "use training.lora.alpha",
    "lora_dropout": "use training.lora.dropout",
    "target_modules": "use training.lora.target_modules",
    **dict.fromkeys(
        ("task_type", "inference_mode", "base_model_name_or_path", "revision", "auto_mapping"),
        OF_THE_MODEL,
    ),
    "peft_version": OF_THE_MODEL,
    "alora_invocation_tokens": OF_THE_INPUT,
    "arrow_config": OF_THE_INPUT,
    "monteclora_config": OF_THE_INPUT,
    "layer_replication": "engines load the model with the layers that it has",
    **dict.fromkeys(("eva_config", "corda_config", "lora_ga_config"), OF_DATA),
    "loftq_config": "use model.quantization",
    **dict.fromkeys(
        ("megatron_config", "megatron_core", "runtime_config", "use_qalora", "qalora_group_size"),
        UNPROVEN,
    ),
    **dict.fromkeys(("use_bdlora", "velora_config", "kasa_config", "lora_bias"), UNPROVEN),
}
"""PEFT's options that a run cannot choose, and why."""
REFUSED_STARTS = {
    "eva": OF_DATA,
    "corda": OF_DATA,
    "lora_ga": OF_DATA,
    "loftq": "use model.quantization",
    "pissa_niter": "it changes the base by chance, so that the saved adapter has no base to fit",
}
"""The same of values of `init_lora_weights`, by what they begin with."""


def lora_config(training: TrainingConfig, task: str = "CAUSAL_LM") -> LoraConfig | None:
    """None where whole models are trained. `task` is PEFT's name for what the model does. Raises
    `ConfigError` for what PEFT does not take, or a run cannot have."""
    if not training.use_lora:
        return None
    lora = training.lora
    _check_names(lora.peft)
    given = lora.target_modules
    targets = given if isinstance(given, str) else list(given)
    try:
        return LoraConfig(
            task_type=task,
            r=lora.r,
            lora_alpha=lora.alpha,
            lora_dropout=lora.dropout,
            target_modules=None if targets == USUAL_LAYERS else targets,
            **copy.deepcopy(lora.peft),  # PEFT adds to lists that it is given
        )
    except (ImportError, TypeError, ValueError) as error:
        raise ConfigError(
            f"training.lora.peft = {lora.peft!r}: PEFT refuses it: {error}"
        ) from error


def _check_names(chosen: Mapping[str, Any]) -> None:
    known = [field.name for field in dataclasses.fields(LoraConfig) if field.init]
    for name, value in chosen.items():
        key = f"training.lora.peft.{name}"
        if reason := REFUSED.get(name):
            raise ConfigError(f"{key} cannot be set: {reason}")
        if name not in known:
            hint = _similar(name, known, "training.lora.peft")
            raise ConfigError(f"{key}: PEFT's LoraConfig has no such option{hint}")
        for start, reason in REFUSED_STARTS.items():
            if name == "init_lora_weights" and str(value).startswith(start):
                raise ConfigError(f"{key} = {value!r} cannot be used: {reason}")
        check_type(LoraConfig, name, value, key=key)


def check_type(options: type, name: str, value: Any, *, key: str) -> None:
    """Raise `ConfigError`, which names the `key`, unless the value has the type that the dataclass
    `options` gives it. Those of TRL and PEFT take any value, and fail much later."""
    hint = get_type_hints(options)[name]
    try:
        TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True)).validate_python(
            value, strict=True
        )
    except ValidationError as error:
        reason = in_plain_words(error.errors()[0]["msg"])
        raise ConfigError(f"{key} = {value!r}: {reason}") from None


def _similar(name: str, known: Sequence[str], section: str) -> str:
    near = nearest(name, known, cutoff=0.6)
    return f"; did you mean {section}.{near}?" if near else ""


def quantization_config(model: ModelConfig) -> BitsAndBytesConfig | None:
    """None where the model is trained in the type of its weights. Raises `ConfigError` for what
    transformers does not take."""
    chosen = model.quantization
    if not chosen:
        return None
    if not is_bitsandbytes_available():
        raise ConfigError(
            "model.quantization needs the package bitsandbytes where the actor runs: "
            f"`pip install 'bitsandbytes>={BITSANDBYTES_MIN_VERSION}'`"
        )
    known = [name for name in inspect.signature(BitsAndBytesConfig).parameters if name != "kwargs"]
    for name in chosen:
        if name not in known:
            raise ConfigError(
                f"model.quantization.{name}: transformers' BitsAndBytesConfig has no such option"
                f"{_similar(name, known, 'model.quantization')}"
            )
    try:
        built = BitsAndBytesConfig(**chosen)
    except (AttributeError, ImportError, TypeError, ValueError) as error:
        raise ConfigError(f"model.quantization = {chosen!r}: {error}") from error
    if not built.load_in_4bit:
        raise ConfigError(
            f"model.quantization = {chosen!r}: set load_in_4bit = true. In 8 bits, what is "
            "multiplied with the weights is rounded as well, which no engine does"
        )
    return built
