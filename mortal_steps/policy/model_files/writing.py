"""Writing the live model to disk without touching it: the files that `save_pretrained` writes."""

import contextlib
import copy
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from peft import PeftModel, get_peft_model_state_dict
from peft.utils import CONFIG_NAME, SAFETENSORS_WEIGHTS_NAME
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion
from transformers.modeling_utils import remove_tied_weights_from_state_dict
from transformers.utils import CONFIG_NAME as CONFIG_FILE
from transformers.utils import GENERATION_CONFIG_NAME

from mortal_steps.policy import private
from mortal_steps.policy.algorithms.base import AdapterBase
from mortal_steps.policy.model_files.merging import merged_state_dict
from mortal_steps.policy.model_files.rows import cast_form, write_rows
from mortal_steps.policy.ranks.parts import gathered, is_dealt_out
from mortal_steps.policy.ranks.world import rank

MODEL_CARD = "README.md"
ADAPTER_CARD = """\
---
base_model: {base}
{revision}library_name: peft
pipeline_tag: text-generation
---
A LoRA adapter of `{base}`, trained with {method} (TRL) by MORTAL. To load both:

    from peft import AutoPeftModelForCausalLM

    model = AutoPeftModelForCausalLM.from_pretrained("path/of/this/folder")

If the base lies elsewhere now, load it from there and give it to `PeftModel.from_pretrained`.
"""


LARGEST_FILE = "50GB"
"""As in transformers."""


def save_model(
    model: PreTrainedModel | PeftModel, folder: Path, dtype: torch.dtype | None = None
) -> None:
    """Write a `from_pretrained` folder without tokenizer, adapters merged, cast to `dtype`."""
    save_settings(model, folder, dtype)
    write_tensors(folder, published_tensors(model), dtype=dtype)


def save_adapter(
    model: PeftModel, folder: Path, base: AdapterBase, dtype: torch.dtype | None = None
) -> None:
    """Write the adapter alone, cast to `dtype`, as engines load it beside its base: the tensors of
    `save_trained`, a configuration that is the same everywhere."""
    tensors = adapter_tensors(model)
    if rank():
        return
    folder.mkdir(parents=True, exist_ok=True)
    config = copy.copy(model.peft_config[model.active_adapter])
    config.inference_mode = True
    config.save_pretrained(str(folder))
    _settle_adapter_config(folder / CONFIG_NAME, base)
    write_rows(folder / SAFETENSORS_WEIGHTS_NAME, tensors, dtype)


def adapter_tensors(model: PeftModel) -> dict[str, torch.Tensor]:
    """Return the tensors that `save_adapter` writes: the live ones, before they are cast. If they
    are dealt out, all ranks take part, and rank 0 gets them whole."""
    # Base embeddings are never among what is trained; peft would look for theirs on the hub.
    found: dict[str, torch.Tensor] = get_peft_model_state_dict(
        model,
        state_dict=adapter_state(model),
        adapter_name=model.active_adapter,
        save_embedding_layers=False,
    )
    return found


def adapter_state(model: PeftModel) -> dict[str, torch.Tensor]:
    """Return the model's state; of one that is dealt out to ranks, what is trained of it, whole on
    rank 0."""
    state: dict[str, torch.Tensor] = model.state_dict()
    if not is_dealt_out(state):
        return state
    base = {name for name, each in model.named_parameters() if not each.requires_grad}
    return gathered({name: tensor for name, tensor in state.items() if name not in base})


def save_trained(
    model: PreTrainedModel | PeftModel, folder: Path, base: AdapterBase, *, method: str
) -> None:
    """Write what training by a `method`, such as GRPO, changes: the model, or the adapter alone
    where there is one, which names `base` as what it belongs to."""
    if not isinstance(model, PeftModel):
        save_model(model, folder)
        return
    state = adapter_state(model)
    if rank():
        return
    model.save_pretrained(folder, state_dict=state)
    _settle_adapter_config(folder / CONFIG_NAME, base)
    revision = f"base_model_revision: {base.revision}\n" if base.revision else ""
    card = ADAPTER_CARD.format(base=base.name, revision=revision, method=method)
    (folder / MODEL_CARD).write_text(card, encoding="utf-8")


def published_tensors(
    model: PreTrainedModel | PeftModel, *, own_names: bool = False
) -> dict[str, torch.Tensor]:
    """Return the tensors that `save_model` writes: tied ones once, an adapter added to its base, by
    the names that transformers publishes such models under. With `own_names`, by those of its
    modules: some of the others differ in shape, too.

    They are the live ones where nothing is added or converted. Where that is due in a model that is
    dealt out to ranks, all take part, and rank 0 gets them whole, the others none.
    """
    base = _base_of(model)
    adapted = isinstance(model, PeftModel)
    tensors = merged_state_dict(model) if adapted else model.state_dict()
    for name in private.keys_not_saved(base):
        tensors.pop(name, None)
    if is_dealt_out(tensors):
        return _published_parts(base, tensors, own_names)
    tensors = remove_tied_weights_from_state_dict(tensors, base)
    return tensors if own_names else dict(revert_weight_conversion(base, tensors))


def _published_parts(
    base: PreTrainedModel, tensors: Mapping[str, torch.Tensor], own_names: bool
) -> dict[str, torch.Tensor]:
    forms = {name: cast_form(tensor) for name, tensor in tensors.items()}
    forms = remove_tied_weights_from_state_dict(forms, base)
    published = forms if own_names else dict(revert_weight_conversion(base, dict(forms)))
    own = {id(form): name for name, form in forms.items()}
    if all(id(form) in own for form in published.values()):
        return {name: tensors[own[id(form)]] for name, form in published.items()}
    whole = gathered({name: tensors[name] for name in forms})
    return {} if rank() else dict(revert_weight_conversion(base, whole))


def write_tensors(
    folder: Path,
    tensors: Mapping[str, torch.Tensor],
    name: str = "model",
    *,
    dtype: torch.dtype | None = None,
) -> None:
    """Write the tensors of a model, split into files of this `name` as transformers does. With
    `dtype` they are cast. Of tensors that are dealt out to ranks, each writes its part."""
    split = split_torch_state_dict_into_shards(
        {name: cast_form(tensor) for name, tensor in tensors.items()},
        filename_pattern=name + "{suffix}.safetensors",
        max_shard_size=LARGEST_FILE,
    )
    for file, names in split.filename_to_tensors.items():
        write_rows(folder / file, {name: tensors[name] for name in names}, dtype)
    if split.is_sharded and rank() == 0:
        size = sum(cast_form(each, dtype).nbytes for each in tensors.values())
        metadata = {**split.metadata, "total_size": size}
        index = {"metadata": metadata, "weight_map": split.tensor_to_filename}
        text = json.dumps(index, indent=2, sort_keys=True) + "\n"
        (folder / f"{name}.safetensors.index.json").write_text(text, encoding="utf-8")


def cast(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    """Return the tensor in this type if it holds floating-point numbers; itself without a type."""
    return tensor if dtype is None or not tensor.is_floating_point() else tensor.to(dtype)


def save_settings(
    model: PreTrainedModel | PeftModel, folder: Path, dtype: torch.dtype | None = None
) -> None:
    """Write what `save_model` writes besides tensors: configurations, and custom code."""
    if rank():
        return
    folder.mkdir(parents=True, exist_ok=True)
    # transformers clears a folder of tensors' files, which other ranks may have begun to write.
    with tempfile.TemporaryDirectory(dir=folder) as name:
        _write_settings(model, Path(name), dtype)
        for path in Path(name).iterdir():
            path.replace(folder / path.name)


def _write_settings(
    model: PreTrainedModel | PeftModel, folder: Path, dtype: torch.dtype | None
) -> None:
    base = _base_of(model)
    quantizer = getattr(base, "hf_quantizer", None)
    base.hf_quantizer = None  # it would write its own tensors
    try:
        with any_generation_settings(base, folder):
            base.save_pretrained(folder, state_dict={})
    finally:
        base.hf_quantizer = quantizer
    path = folder / CONFIG_FILE
    config = json.loads(path.read_text(encoding="utf-8"))
    config.pop("quantization_config", None)
    config["use_cache"] = True  # training has none, which would slow down whoever samples
    if dtype is not None:
        config["dtype"] = str(dtype).removeprefix("torch.")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


@contextlib.contextmanager
def any_generation_settings(model: PreTrainedModel, folder: Path) -> Iterator[None]:
    """Save a model in the block whatever its generation settings: transformers reads contradictory
    ones, as many models have, and refuses to write them."""
    settings = getattr(model, "generation_config", None)
    try:
        if settings is not None:
            settings.validate(strict=True)
    except ValueError:
        model.generation_config = type(settings)()
        try:
            yield
        finally:
            model.generation_config = settings
        settings.to_json_file(str(folder / GENERATION_CONFIG_NAME))
    else:
        yield


def _base_of(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    return model.get_base_model() if isinstance(model, PeftModel) else model


def _settle_adapter_config(path: Path, base: AdapterBase) -> None:
    """Rewrite an adapter's configuration to be the same everywhere: peft writes names in a set's
    order, and the base's path on this machine."""
    config = json.loads(path.read_text(encoding="utf-8"))
    for key in ("target_modules", "exclude_modules"):
        if isinstance(config[key], list):
            config[key].sort()
    config["base_model_name_or_path"] = base.name
    config["revision"] = base.revision
    path.write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")
