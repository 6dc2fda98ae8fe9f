"""Which layers `[training.lora]` adapts, found out on a model without weights.

PEFT finds the same out when the actor has loaded the model: too late for somebody who rents a GPU.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from peft import get_peft_model
from peft.tuners.lora.layer import ParamWrapper
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import ModulesToSaveWrapper, TrainableTokensWrapper
from transformers import PreTrainedModel

from mortal_steps.config import ModelConfig, TrainingConfig
from mortal_steps.errors import ConfigError
from mortal_steps.policy.algorithms.stepping.lora import lora_config
from mortal_steps.policy.algorithms.stepping.model_options import without_weights
from mortal_steps.rollout.engines.table import ALWAYS_THERE, ENGINES

KEY = "training.lora.target_modules"


def check_targets(
    training: TrainingConfig, started: ModelConfig, *, engine: str | None
) -> tuple[str, ...]:
    """Return a warning for each name in `training.lora.target_modules` that no layer of the model
    has: PEFT skips it silently if at least one other name fits.

    Raises `ConfigError` for what PEFT refuses, TRL cannot train, or the rollout workers' engine
    cannot compute with, and `ModelError` if the model's configuration cannot be read.
    """
    adapter = lora_config(training)
    if adapter is None:
        return ()
    lora, model = training.lora, without_weights(started)
    layers = _linear_layers(model)
    saved = list(adapter.modules_to_save or ())  # PEFT may add to it
    try:
        with torch.device("meta"):
            get_peft_model(model, adapter)
    except ValueError as error:
        reason = str(error).partition("(")[0] if "Target module" in str(error) else str(error)
        raise ConfigError(
            f"{KEY} = {_plain(lora.target_modules)!r} with training.lora.dropout = {lora.dropout} "
            f"and training.lora.peft = {lora.peft!r}: PEFT cannot adapt the model: {reason}; its "
            f"linear layers are {layers}"
        ) from error
    if isinstance(model.get_output_embeddings(), BaseTunerLayer | TrainableTokensWrapper):
        raise ConfigError(
            f"{KEY} = {_plain(lora.target_modules)!r} and training.lora.peft = {lora.peft!r} adapt "
            "the output embeddings (those of the input, where a model ties them), whose adapter "
            "TRL would never train: it multiplies with their weights directly. Name other layers, "
            f"of {layers}"
        )
    _check_saved(saved, model, ensured=adapter.ensure_weight_tying)
    _check_experts(training, model, engine or ALWAYS_THERE)
    names = lora.target_modules if isinstance(lora.target_modules, tuple) else ()
    left = adapter.target_modules or ()  # without the names that PEFT takes for those of experts
    paths = [name for name, each in model.named_modules() if isinstance(each, BaseTunerLayer)]
    return tuple(
        f"{KEY}: the model has no layer {name!r}, which therefore gets no adapter; there are "
        f"{layers}"
        for name in names
        if name in left and not _has(paths, name)
    )


def _check_saved(names: list[str], model: PreTrainedModel, *, ensured: bool) -> None:
    """Raise `ConfigError` for a name in `modules_to_save` that no module of the model has, which
    PEFT skips silently, and for one of two embeddings that the model ties."""
    key = f"training.lora.peft.modules_to_save = {names!r}"
    paths = [name for name, each in model.named_modules() if isinstance(each, ModulesToSaveWrapper)]
    for name in names:
        if not _has(paths, name):
            raise ConfigError(f"{key}: the model has no module {name!r}; name those that it has")
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    is_tied = model.config.get_text_config().tie_word_embeddings and not ensured
    if is_tied and any(isinstance(end, ModulesToSaveWrapper) for end in ends):
        raise ConfigError(
            f"{key}: the model's input and output embeddings are the same, and PEFT would train "
            "one of them or two copies, with which engines cannot load the model; set "
            "training.lora.peft.ensure_weight_tying = true, or leave the embeddings out"
        )


def _check_experts(training: TrainingConfig, adapted: PreTrainedModel, engine: str) -> None:
    """Raise `ConfigError` if the engine takes no adapter of experts, and gets one."""
    adapters = ENGINES.entry(engine).adapters
    if adapters is None or adapters.experts or not training.publishes_adapter:
        return
    if any(isinstance(each, ParamWrapper) for each in adapted.modules()):
        raise ConfigError(
            f"{KEY} = {_plain(training.lora.target_modules)!r} adapts experts: {engine} takes "
            'no adapters of them as PEFT writes them; set training.lora.publish = "merged", with '
            f"which rollout workers receive whole models, or rollout.engine = {ALWAYS_THERE!r}"
        )


def _linear_layers(model: PreTrainedModel) -> str:
    output = model.get_output_embeddings()
    return ", ".join(
        sorted(
            {
                name.rpartition(".")[2]
                for name, layer in model.named_modules()
                if isinstance(layer, torch.nn.Linear) and layer is not output
            }
        )
    )


def _plain(targets: str | tuple[str, ...]) -> str | list[str]:
    return targets if isinstance(targets, str) else list(targets)


def _has(paths: Iterable[str], name: str) -> bool:
    return any(f".{path}".endswith(f".{name}") for path in paths)
