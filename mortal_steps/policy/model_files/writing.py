"""Writing the live model to disk without touching it.

The files are those that `save_pretrained` writes, byte for byte, in one pass (tensor_file.py).
Functions that say so return the digests of the files that they have hashed while writing.

Private names used here: transformers `modeling_utils.remove_tied_weights_from_state_dict`,
`core_model_loading.revert_weight_conversion` and a model's `_keys_to_ignore_on_save`.
"""

from __future__ import annotations

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
from transformers.utils import GENERATION_CONFIG_NAME, SAFE_WEIGHTS_INDEX_NAME

from mortal_steps.policy.model_files.adapter_base import AdapterBase
from mortal_steps.policy.model_files.merging import merged_state_dict
from mortal_steps.policy.model_files.tensor_file import cast, digest_of_tensors, write_tensors
from mortal_steps.store.files import link_file
from mortal_steps.store.folders import files_below

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


FILE_PATTERN = "model{suffix}.safetensors"
LARGEST_FILE = "50GB"
"""As in transformers."""

Digests = dict[str, str]
"""`blake3:<hex>` of files, by name."""
Settings = Mapping[str, bytes]
"""The files of a model other than its tensors, by name."""


def save_model(
    model: PreTrainedModel | PeftModel,
    folder: Path,
    settings: Settings | None = None,
    dtype: torch.dtype | None = None,
) -> Digests:
    """Write a plain `from_pretrained` folder without a tokenizer; an adapter is added to its base
    weights.

    With `dtype` the tensors are cast. With `settings` (`settings_of` the same model and type), the
    other files are these. Returns digests.
    """
    return _save(model, folder, published_tensors(model), settings=settings, dtype=dtype)


def save_adapter(
    model: PeftModel, folder: Path, base: AdapterBase, dtype: torch.dtype | None = None
) -> Digests:
    """Write the adapter alone, as engines load it beside its base.

    It has the tensors that `save_trained` writes, and a configuration that is the same on every
    machine. With `dtype` the tensors are cast. Returns digests.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = copy.copy(model.peft_config[model.active_adapter])
    config.inference_mode = True
    config.save_pretrained(str(folder))
    _settle_adapter_config(folder / CONFIG_NAME, base)
    digest = write_tensors(folder / SAFETENSORS_WEIGHTS_NAME, adapter_tensors(model), dtype)
    return {SAFETENSORS_WEIGHTS_NAME: digest}


def adapter_tensors(model: PeftModel) -> dict[str, torch.Tensor]:
    """The tensors that `save_adapter` writes, which are the live ones."""
    name = model.active_adapter
    # Base embeddings are never among what is trained; peft would look for theirs on the hub.
    found: dict[str, torch.Tensor] = get_peft_model_state_dict(
        model, adapter_name=name, save_embedding_layers=False
    )
    return found


def save_trained(
    model: PreTrainedModel | PeftModel,
    folder: Path,
    base: AdapterBase,
    *,
    method: str,
    own_names: bool = False,
    beside: Mapping[str, tuple[Path, str]] | None = None,
) -> Digests:
    """What training by a `method`, such as GRPO, changes: the model, or the adapter alone where
    there is one, which names `base` as what it belongs to.

    With `own_names` its tensors go by the names of its modules, not by those that transformers
    publishes models under: some of these two differ in shape, too. Files that lie `beside`, each
    with its digest by its name, are linked where these would be the same.

    Returns digests.
    """
    if not isinstance(model, PeftModel):
        return _save(model, folder, published_tensors(model, own_names=own_names), beside)
    model.save_pretrained(folder)
    _settle_adapter_config(folder / CONFIG_NAME, base)
    revision = f"base_model_revision: {base.revision}\n" if base.revision else ""
    card = ADAPTER_CARD.format(base=base.name, revision=revision, method=method)
    (folder / MODEL_CARD).write_text(card, encoding="utf-8")
    return {}


def published_tensors(
    model: PreTrainedModel | PeftModel, *, own_names: bool = False
) -> dict[str, torch.Tensor]:
    """The tensors that `save_model` writes: tied ones once, an adapter added to its base, by the
    names that transformers publishes such models under. With `own_names`, by those of its modules.

    They are the live ones where nothing is added or converted.
    """
    base = _base_of(model)
    adapted = isinstance(model, PeftModel)
    tensors = merged_state_dict(model) if adapted else model.state_dict()
    for name in base._keys_to_ignore_on_save or ():
        tensors.pop(name, None)
    tensors = remove_tied_weights_from_state_dict(tensors, base)
    return tensors if own_names else dict(revert_weight_conversion(base, tensors))


def save_settings(
    model: PreTrainedModel | PeftModel, folder: Path, dtype: torch.dtype | None = None
) -> None:
    """Write the files that `save_model` writes besides the tensors: configurations, and the code of
    a model with a class of its own."""
    base = _base_of(model)
    with any_generation_settings(base, folder):
        base.save_pretrained(folder, state_dict={})
    path = folder / CONFIG_FILE
    config = json.loads(path.read_text(encoding="utf-8"))
    is_quantized = config.pop("quantization_config", None) is not None
    if dtype is not None:
        config["dtype"] = str(dtype).removeprefix("torch.")
    if dtype is not None or is_quantized:
        text = json.dumps(config, indent=2, sort_keys=True) + "\n"
        path.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def any_generation_settings(model: PreTrainedModel, folder: Path) -> Iterator[None]:
    """In the block, a model is saved to the folder whatever its generation settings are.

    transformers reads settings that contradict each other, such as a `temperature` without
    `do_sample`, which many models have. It refuses to write them; here they are written as read.
    """
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


def settings_of(model: PreTrainedModel | PeftModel, dtype: torch.dtype | None = None) -> Settings:
    """The files that `save_settings` would write."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_settings(model, folder, dtype)
        return {name: (folder / name).read_bytes() for name in files_below(folder)}


def write_settings(settings: Settings, folder: Path) -> None:
    """Write the files that `settings_of` returned."""
    for name, content in settings.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def _base_of(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    return model.get_base_model() if isinstance(model, PeftModel) else model


def _save(
    model: PreTrainedModel | PeftModel,
    folder: Path,
    tensors: dict[str, torch.Tensor],
    beside: Mapping[str, tuple[Path, str]] | None = None,
    settings: Settings | None = None,
    dtype: torch.dtype | None = None,
) -> Digests:
    if settings is None:
        save_settings(model, folder, dtype)
    else:
        write_settings(settings, folder)
    num_parameters = _base_of(model).num_parameters()
    return write_model(folder, tensors, num_parameters, beside=beside, dtype=dtype)


def write_model(
    folder: Path,
    tensors: Mapping[str, torch.Tensor],
    num_parameters: int,
    *,
    beside: Mapping[str, tuple[Path, str]] | None = None,
    dtype: torch.dtype | None = None,
) -> Digests:
    """Write the tensors of a model with this number of parameters, as `save_model` does, without
    the other files. Returns digests."""
    split = split_torch_state_dict_into_shards(
        dict(tensors), filename_pattern=FILE_PATTERN, max_shard_size=LARGEST_FILE
    )
    digests: Digests = {}
    for name, held in split.filename_to_tensors.items():
        part = {key: tensors[key] for key in held}
        there = (beside or {}).get(name)
        if there is not None and digest_of_tensors(part) == there[1]:
            digests |= link_model(folder, {name: there})
        else:
            digests[name] = write_tensors(folder / name, part, dtype)
    if split.is_sharded:
        size = {"total_parameters": num_parameters, **split.metadata}
        if dtype is not None:
            size["total_size"] = sum(cast(tensor, dtype).nbytes for tensor in tensors.values())
        index = {"metadata": size, "weight_map": split.tensor_to_filename}
        text = json.dumps(index, indent=2, sort_keys=True) + "\n"
        (folder / SAFE_WEIGHTS_INDEX_NAME).write_text(text, encoding="utf-8")
    return digests


def link_model(folder: Path, files: Mapping[str, tuple[Path, str]]) -> Digests:
    """Link files from elsewhere into the folder; each comes with its digest, by its name. Returns
    digests."""
    digests: Digests = {}
    for name, (path, digest) in files.items():
        link_file(path, folder / name)
        if (folder / name).samefile(path):  # and not a copy
            digests[name] = digest
    return digests


def _settle_adapter_config(path: Path, base: AdapterBase) -> None:
    """Rewrite an adapter's configuration so that it is the same in every process and on every
    machine. peft writes module names in the order of a set, and the base by its path on this
    machine."""
    config = json.loads(path.read_text(encoding="utf-8"))
    for key in ("target_modules", "exclude_modules"):
        if isinstance(config[key], list):
            config[key].sort()
    config["base_model_name_or_path"] = base.name
    config["revision"] = base.revision
    path.write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")
