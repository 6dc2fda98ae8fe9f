"""Which layers `training.lora.target_modules` adapts, found out on a model without weights.

PEFT finds the same out when the actor has loaded the model: too late for somebody who rents a GPU.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora.layer import ParamWrapper
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import ModulesToSaveWrapper, TrainableTokensWrapper
from transformers import PreTrainedModel

from mortal_steps.config import RunConfig
from mortal_steps.config.engines import ALWAYS_THERE, ENGINES
from mortal_steps.errors import ConfigError
from mortal_steps.policy.algorithms.stepping.lora import lora_config
from mortal_steps.policy.algorithms.stepping.model_options import without_weights
from mortal_steps.system.gpus import has_gpu

KEY = "training.lora.target_modules"
EXPERTS = re.compile(r"expert|moe")
"""In the names of a mixture's parameters, and of no other model's."""


def check_targets(config: RunConfig) -> tuple[str, ...]:
    """A warning for each name in `training.lora.target_modules` that no layer of the model has,
    and for each other that PEFT ignores. PEFT skips such names silently if at least one other name
    fits.

    Raises `ConfigError` if no name fits, if one names a layer that cannot be adapted, or if the
    rollout workers' engine cannot compute with the adapter, and `ModelError` if the model's
    configuration cannot be read.
    """
    adapter = lora_config(config)
    if adapter is None:
        return ()
    model = without_weights(config.model)
    layers = sorted(
        {name.rpartition(".")[2] for name, each in model.named_modules() if _is_linear(model, each)}
    )
    targets = config.training.lora.target_modules
    wanted = list(targets) if isinstance(targets, tuple) else targets
    remedy = f"name layers in a list, of {', '.join(layers)}"
    saved = list(adapter.modules_to_save or ())  # PEFT may add to it
    ignored = _apply(config, adapter, model, remedy)
    if isinstance(model.get_output_embeddings(), TrainableTokensWrapper):
        raise ConfigError(
            "training.lora.peft.trainable_token_indices adapts the output embeddings (those of the "
            "input, where a model ties them), and TRL cannot train them so; leave it out"
        )
    if isinstance(model.get_output_embeddings(), BaseTunerLayer):
        raise ConfigError(
            f"{KEY} = {wanted!r} adapts the output embeddings, whose adapter TRL would never train "
            f"(it multiplies with their weights directly); {remedy}"
        )
    _check_saved(saved, model, ensured=adapter.ensure_weight_tying)
    _check_mixture(config, model)
    left = adapter.target_modules or ()  # without the names that PEFT takes for those of experts
    paths = [name for name, each in model.named_modules() if isinstance(each, BaseTunerLayer)]
    return ignored + tuple(
        f"{KEY}: the model has no layer {name!r}, which therefore gets no adapter; "
        f"there are {', '.join(layers)}"
        for name in (targets if isinstance(targets, tuple) else ())
        if name in left and not _has(paths, name)
    )


def _apply(
    config: RunConfig, adapter: LoraConfig, model: PreTrainedModel, remedy: str
) -> tuple[str, ...]:
    """Put the adapter into the model. A sentence for each of PEFT's options that fits nothing in
    it; raises `ConfigError` for what PEFT refuses."""
    lora = config.training.lora
    targets, given = lora.target_modules, lora.peft
    wanted = list(targets) if isinstance(targets, tuple) else targets
    try:
        with torch.device("meta"), warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            get_peft_model(model, adapter)
    except ValueError as error:
        if "lora_dropout" in str(error):
            raise ConfigError(
                f"training.lora.dropout = {lora.dropout}: {KEY} = {wanted!r} adapts experts, and "
                "PEFT does that only without dropout; set it to 0, or name other layers"
            ) from error
        if given and "arget module" not in str(error):
            raise ConfigError(
                f"training.lora.peft = {given!r}: PEFT cannot apply it to the model: {error}"
            ) from error
        raise ConfigError(f"{KEY} = {wanted!r}: {_reason(error, targets)}; {remedy}") from error
    return tuple(
        f"training.lora.peft.{name}: {warning.message}"
        for name in given
        for warning in heard
        if name in str(warning.message) and issubclass(warning.category, RuntimeWarning)
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


def _check_mixture(config: RunConfig, adapted: PreTrainedModel) -> None:
    """Raise `ConfigError` if the engine takes no such adapter of a mixture of experts."""
    name = config.rollout.engine or ALWAYS_THERE
    adapters, targets = ENGINES.entry(name).adapters, config.training.lora.target_modules
    if adapters is None or not config.training.publishes_adapter:
        return
    remedy = (
        'set training.lora.publish = "merged", with which rollout workers receive whole models, or '
        f"rollout.engine = {ALWAYS_THERE!r}"
    )
    if not adapters.experts and any(isinstance(each, ParamWrapper) for each in adapted.modules()):
        wanted = list(targets) if isinstance(targets, tuple) else targets
        raise ConfigError(
            f"{KEY} = {wanted!r} adapts experts: {name} takes no adapters of them as PEFT writes "
            f"them; {remedy}"
        )
    on_cpu = config.compute.backend == "local" and not has_gpu()
    if on_cpu and not adapters.mixtures_on_cpu and _has_experts(adapted):
        raise ConfigError(
            f'training.lora.publish = "adapter": on a CPU, {name} computes no adapters beside a '
            f"mixture of experts, which {config.model.name_or_path} is; {remedy}"
        )


def _has_experts(model: PreTrainedModel) -> bool:
    return any(EXPERTS.search(name) for name, _ in model.named_parameters())


def _is_linear(model: PreTrainedModel, layer: Any) -> bool:
    return isinstance(layer, torch.nn.Linear) and layer is not model.get_output_embeddings()


def _has(paths: Iterable[str], name: str) -> bool:
    return any(f".{path}".endswith(f".{name}") for path in paths)


def _reason(error: ValueError, targets: str | tuple[str, ...]) -> str:
    """What PEFT says, without the printed module and advice for its own arguments."""
    said = str(error)
    if "not found" in said or not targets:
        how = ", as a regular expression of its path," if isinstance(targets, str) else ""
        return f"it fits{how} no layer of the model, so that there would be no adapter"
    kind = said.partition("(")[0].removeprefix("Target module ").strip()
    return f"PEFT adapts no {kind}" if said.startswith("Target module ") else said
