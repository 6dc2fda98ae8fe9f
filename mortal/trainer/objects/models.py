"""Turns models, tokenizers and adapters that were given as objects into configuration keys."""

import copy
import dataclasses
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mortal_steps.config.training import USUAL_LAYERS
from mortal_steps.errors import ConfigError, ModelError
from mortal_steps.policy import private
from mortal_steps.runs.objects import given_again, object_path
from mortal_steps.store.files import digest_file

OF_METHOD = "quant_method"
"""What transformers itself calls the kind of a quantization."""
DTYPES = {"torch.float32": "float32", "torch.bfloat16": "bfloat16"}

LORA: Mapping[str, str] = {
    "r": "r",
    "lora_alpha": "alpha",
    "lora_dropout": "dropout",
    "target_modules": "target_modules",
}
"""Option of peft's LoraConfig -> key of `[training.lora]`."""
LORA_FOLLOWS = frozenset(
    {"task_type", "peft_type", "base_model_name_or_path", "revision", "inference_mode"}
    | {"auto_mapping", "runtime_config", "peft_version"}
)
"""Options of peft's LoraConfig that follow from the run: which model the adapter is for, and that
it is trained."""


def model_settings(
    model: Any,
    processing_class: Any,
    runs_dir: str,
    *,
    has_adapter: bool = False,
    auto_class: str = "AutoModelForCausalLM",
) -> dict[str, Any]:
    """Return the keys of `[model]` for a model's name, or a model object with its tokenizer. Raises
    `ModelError` for what training cannot start from.

    `has_adapter`: an adapter is trained, so that the model's own weights are frozen in any case.
    `auto_class` loads the model in the run.
    """
    if processing_class is not None and not hasattr(processing_class, "save_pretrained"):
        raise ModelError(
            f"processing_class is of type {type(processing_class).__name__}; give a tokenizer from "
            "transformers"
        )
    if isinstance(model, str | Path):
        if processing_class is not None:
            _check_is_models_own(processing_class, str(model))
        return {"model.name_or_path": str(model)}
    if any(kind.__name__ == "PeftModel" for kind in type(model).__mro__):
        raise ModelError(
            "model is a PeftModel; give the base model, model.unload() or "
            "model.merge_and_unload(), and peft_config=LoraConfig(...)"
        )
    if not hasattr(model, "save_pretrained"):
        raise ModelError(
            f"model is of type {type(model).__name__}; give the name of a model on the hub, a "
            "folder, or a transformers.PreTrainedModel"
        )
    _check_code(model, auto_class)
    if not has_adapter:
        _check_is_trained(model)
    if str(model.dtype) not in DTYPES:
        raise ModelError(f"model has the dtype {model.dtype}; convert it to {' or '.join(DTYPES)}")
    folder = saved(runs_dir, model, processing_class or tokenizer_of(model, "processing_class"))
    return {"model.name_or_path": str(folder), "model.dtype": DTYPES[str(model.dtype)]}


def teacher_settings(teacher: Any, runs_dir: str) -> dict[str, Any]:
    """Return the keys of `[algorithm.teacher]` for a model's name, or a model object. Raises
    `ModelError` for what no other process could load."""
    if isinstance(teacher, str | Path):
        return {"algorithm.teacher.name_or_path": str(teacher)}
    if not hasattr(teacher, "save_pretrained"):
        raise ModelError(
            f"teacher_model is of type {type(teacher).__name__}; give the name of a model on the "
            "hub, a folder, or a transformers.PreTrainedModel"
        )
    _check_code(teacher, "AutoModelForCausalLM")
    dtype = DTYPES.get(str(teacher.dtype))
    if dtype is None:
        raise ModelError(
            f"teacher_model has the dtype {teacher.dtype}; convert it to {' or '.join(DTYPES)}"
        )
    return {
        "algorithm.teacher.name_or_path": str(saved(runs_dir, teacher)),
        "algorithm.teacher.dtype": dtype,
    }


def _check_is_trained(model: Any) -> None:
    """Raise `ModelError` for frozen weights: that they are is not part of a saved model."""
    frozen = [name for name, weight in model.named_parameters() if not weight.requires_grad]
    if frozen:
        raise ModelError(
            f"{len(frozen)} weights of model are frozen (requires_grad = False), such as "
            f"{frozen[0]}, and a run trains all of them; give peft_config=LoraConfig(...) to train "
            "an adapter instead, or leave them unfrozen"
        )


def _check_code(model: Any, auto_class: str) -> None:
    """Raise `ModelError` for a model of a class that no other process could load: its folder would
    be loaded as a class of transformers, or not at all."""
    kind = type(model)
    if kind.__module__.partition(".")[0] == "transformers" or _brings_its_code(model, auto_class):
        return
    if any(base.__name__ == "PreTrainedModel" for base in kind.__mro__):
        raise ModelError(
            f"model is of the class {kind.__name__} ({kind.__module__}), which is not one of "
            "transformers' own, and a run loads the model in processes of its own. Save it with "
            f"its code: move the class and its configuration into a file, call "
            f"{kind.__name__}.register_for_auto_class({auto_class!r}) and "
            f"{type(model.config).__name__}.register_for_auto_class(), save model and tokenizer "
            "into a folder, and give model='the folder', config={'model.trust_remote_code': True}"
        )


def _brings_its_code(model: Any, auto_class: str) -> bool:
    """Return whether `save_pretrained` writes down which code the model is of."""
    named = getattr(model.config, "auto_map", None) or {}
    return private.is_registered(model) or auto_class in named


def tokenizer_of(model: Any, parameter: str) -> Any:
    """Load the model's own tokenizer; without one, raise `ModelError` naming `parameter`."""
    from transformers import AutoTokenizer  # already imported, because the model is from there

    name = model.config.name_or_path
    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"no tokenizer was given, and there is none at {name!r}; give one with "
            f"{parameter}=tokenizer"
        ) from error


def saved(runs_dir: str, *objects: Any) -> Path:
    """Save transformers objects into a folder named after its content; returns it."""
    with _beside(runs_dir) as folder:
        for one in objects:
            one.save_pretrained(folder)
        kept = object_path(runs_dir, "model", _digest(folder))
        try:
            os.rename(folder, kept)
        except OSError:
            if not kept.is_dir():
                raise
            given_again(kept)  # also by a script that has begun at the same time
        return kept


def _check_is_models_own(tokenizer: Any, name: str) -> None:
    """Raise `ModelError` unless the tokenizer is the model's own, whatever it pads with and cuts
    off: TRL pads prompts on the left, and masks what it pads."""
    from transformers import AutoTokenizer

    own, used = AutoTokenizer.from_pretrained(name), copy.deepcopy(tokenizer)
    own.padding_side, own.truncation_side = used.padding_side, used.truncation_side
    if used.pad_token in own.get_vocab():
        own.pad_token = used.pad_token
    for one in (own, used):
        for side in ("padding_side", "truncation_side"):  # saved if it was an argument
            one.init_kwargs.pop(side, None)
        if one.is_fast:  # it saves what the last call padded and cut off
            one.backend_tokenizer.no_padding()
            one.backend_tokenizer.no_truncation()
    with tempfile.TemporaryDirectory() as given, tempfile.TemporaryDirectory() as models:
        used.save_pretrained(given)
        own.save_pretrained(models)
        if _digest(Path(given)) == _digest(Path(models)):
            return
    raise ModelError(
        f"processing_class is not the tokenizer of {name!r}; give the model as an object as well, "
        "or save both into one folder and give that folder"
    )


def other_padding(tokenizer: Any, name: str) -> str | None:
    """Return what the tokenizer pads with, if that of the model of this name pads with something
    else: a reward model reads its score where padding begins."""
    from transformers import AutoTokenizer

    own = AutoTokenizer.from_pretrained(name)
    used: str | None = tokenizer.pad_token
    return None if used == (own.pad_token or own.eos_token) else used


def check_reference(model: Any, reference: Any, *, has_adapter: bool) -> None:
    """Raise `ModelError` unless `ref_model` is None or has the weights of `model`: the reference
    of a run is the model that it begins with."""
    if reference is None:
        return
    if has_adapter:
        raise ModelError(
            "ref_model beside peft_config: the reference is the model without its adapter; leave "
            "ref_model out"
        )
    if isinstance(model, str | Path) or not hasattr(reference, "state_dict"):
        raise ModelError(
            "ref_model: the reference of a run is the model that it begins with; leave ref_model "
            "out, or give model as an object, too, with the same weights"
        )
    if reference is model or not _are_alike(model, reference):
        raise ModelError(
            "ref_model is another model than model, and the reference of a run is the model that "
            "it begins with; leave ref_model out, or give one with the same weights"
        )


def _are_alike(model: Any, other: Any) -> bool:
    """Return whether two models compute the same."""
    one, two = model.state_dict(), other.state_dict()
    return (
        type(model) is type(other)
        and private.attention_of(model) == private.attention_of(other)
        and one.keys() == two.keys()
        and all(one[key].dtype == two[key].dtype and one[key].equal(two[key]) for key in one)
    )


def lora_settings(peft_config: Any) -> dict[str, Any]:
    """Return the keys for a `peft.LoraConfig`; raises `ConfigError` for another adapter."""
    if type(peft_config).__name__ != "LoraConfig":
        raise ConfigError(
            f"peft_config is of type {type(peft_config).__name__}; the only supported adapter is "
            "peft.LoraConfig"
        )
    given, default = vars(peft_config), vars(type(peft_config)())
    others = {
        name: _plain(given[name])
        for name in given
        if name not in LORA and name not in LORA_FOLLOWS and given[name] != default.get(name)
    }
    modules = given["target_modules"]
    named = USUAL_LAYERS if modules is None else _plain(modules)
    found = {LORA[name]: given[name] for name in LORA} | {"target_modules": named, "peft": others}
    return {
        "training.use_lora": True,
        **{f"training.lora.{key}": value for key, value in found.items()},
    }


def quantization_settings(quantization_config: Any) -> dict[str, Any]:
    """Return the key for a `BitsAndBytesConfig`; raises `ConfigError` for another kind."""
    if type(quantization_config).__name__ != "BitsAndBytesConfig":
        raise ConfigError(
            f"quantization_config is of type {type(quantization_config).__name__}; the only "
            "supported one is transformers.BitsAndBytesConfig"
        )
    options = quantization_config.to_diff_dict()
    own = {name: options[name] for name in options if name != OF_METHOD and name[0] != "_"}
    return {"model.quantization": own}


def _plain(value: Any) -> Any:
    if isinstance(value, set):
        return sorted(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


@contextmanager
def _beside(runs_dir: str) -> Iterator[Path]:
    """Make a new folder beside the other objects; remove it at the end unless it was renamed."""
    root = object_path(runs_dir, "model", "").parent
    root.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".saving-", dir=root))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _digest(folder: Path) -> str:
    lines = [f"{digest_file(path)} {path.name}\n" for path in sorted(folder.iterdir())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
