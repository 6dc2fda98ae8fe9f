"""A LoRA adapter beside its base in vLLM, and what vLLM's worker says of it.

vLLM keeps an adapter under a number. Asked to load another one under the same number it answers
that it has it, and goes on with the old one. Whether it holds an adapter is therefore not asked by
number or name: the tensors that its kernels read are compared with the file's.

    file   q_proj.lora_A (r, in)    q_proj.lora_B (out, r)
    held   qkv_proj.lora_a_stacked[0][slot, 0, :r]    lora_b_stacked[0][slot, 0, :, :r] = alpha/r B

Names used here that vLLM does not publish: the worker's `model_runner.lora_manager` with its
`_adapter_manager`, whose `modules`, `packed_modules` and `lora_index_to_id` are read, and
`lora_a_stacked`, `lora_b_stacked`, `slice_lora_a` and `slice_lora_b` of their layers.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mortal_steps.errors import EngineError
from mortal_steps.rollout.engines.model_files import ADAPTER_WEIGHTS, adapter_digest
from mortal_steps.rollout.engines.vllm.library import message_of
from mortal_steps.rollout.weight_sync.published import PublishedTensors

if TYPE_CHECKING:  # vLLM sets the environment that torch reads when it is imported
    import torch

    Pair = tuple[torch.Tensor, torch.Tensor]  # A and scaled B of one module


class VllmAdapters:
    """Which adapter one engine samples with: each has a name and a number that no other has had."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.request: Any = None
        """vLLM's request for the adapter, which goes with every prompt; None for the model without
        one."""

    def load(self, llm: Any, folder: Path) -> None:
        """Let `llm` compute with the adapter, and forget the one before. Raises `EngineError` for
        one that vLLM does not take; the former then stays."""
        from vllm.lora.request import LoRARequest

        number, before = next(self._numbers), self.request
        request = LoRARequest(adapter_digest(folder), number, str(folder))
        try:
            llm.llm_engine.add_lora(request)
        except Exception as error:
            raise EngineError(
                f"vLLM does not take the adapter in {folder}: {message_of(error)}\nTo sample "
                "with the adapter added to its base instead, begin a run with "
                'training.lora.publish = "merged"'
            ) from error
        self.request = request
        if before is not None:
            llm.llm_engine.remove_lora(before.lora_int_id)

    def compare(self, llm: Any, published: PublishedTensors) -> dict[str, bool]:
        """Return the modules whose tensors vLLM's kernels do not read; where none is left out and
        the base is not quantized, all are compared as a whole."""
        number = self.request.lora_int_id if self.request else 0
        answers = llm.collective_rpc("differing_tensors", args=(str(published.folder), number))
        is_quantized = llm.llm_engine.model_config.quantization is not None
        published.is_whole = not is_quantized and not any(left_out for _, left_out in answers)
        return {name: False for names, _ in answers for name in names}

    def forget(self) -> None:
        """Compute without an adapter."""
        self.request = None


class AdapterWitness:
    """Methods that a worker of vLLM has beside its own (`worker_extension_cls`)."""

    model_runner: Any

    def differing_tensors(self, folder: str, number: int) -> tuple[list[str], bool]:
        """Names of modules whose tensors under `number` are not those in the adapter's folder, and
        whether there are modules that are not compared.

        Of linear layers, which are all that have adapters in most models; what vLLM keeps of fused
        experts, for one, the probe alone speaks for.
        """
        from vllm.lora.layers.base_linear import BaseLinearLayerWithLoRA

        manager = self.model_runner.lora_manager._adapter_manager
        if number not in manager.lora_index_to_id:
            return ["all of it"], False
        slot = manager.lora_index_to_id.index(number)
        wanted = _read(Path(folder), manager)
        other, left_out = [], False
        for name, layer in manager.modules.items():
            parts = manager.packed_modules.get(name, [name])
            pairs = [wanted.pop(part, None) for part in parts]
            if not isinstance(layer, BaseLinearLayerWithLoRA):
                left_out |= any(pairs)
                continue
            stacks = zip(layer.lora_a_stacked, layer.lora_b_stacked, strict=True)
            held = [(a[slot, 0], b[slot, 0]) for a, b in stacks]
            share = _own_share(layer, pairs)
            if len(share) != len(held) or not all(map(_is_held, share, held)):
                other.append(name)
        return sorted([*other, *wanted]), left_out


def _read(folder: Path, manager: Any) -> dict[str, Pair]:
    """Return the adapter's matrices by the names of vLLM's modules, scaled and typed as it does."""
    from safetensors.torch import load_file
    from vllm.lora.peft_helper import PEFTHelper
    from vllm.lora.utils import parse_fine_tuned_lora_name

    mapper = getattr(manager.model, "hf_to_vllm_mapper", None)
    renames = mapper.get_rename_mapper() if mapper is not None else None
    scaling = PEFTHelper.from_local_dir(str(folder), None).vllm_lora_scaling_factor
    halves: dict[tuple[str, bool], torch.Tensor] = {}
    for name, tensor in load_file(folder / ADAPTER_WEIGHTS).items():
        halves[parse_fine_tuned_lora_name(name, renames)] = tensor.to(
            manager.lora_config.lora_dtype
        )
    return {
        name: (halves[name, True], halves[name, False] * scaling) for name, is_a in halves if is_a
    }


def _own_share(layer: Any, pairs: list[Pair | None]) -> list[Pair | None]:
    """Return what this worker holds of them, where several share a layer."""
    if layer.tp_size == 1:
        return pairs
    all_a = [pair[0] if pair else None for pair in pairs]
    all_b = [pair[1] if pair else None for pair in pairs]
    if len(pairs) == 1:
        return [(layer.slice_lora_a(all_a[0]), layer.slice_lora_b(all_b[0]))] if pairs[0] else pairs
    shares = zip(layer.slice_lora_a(all_a), layer.slice_lora_b(all_b), strict=True)
    return [None if a is None or b is None else (a, b) for a, b in shares]


def _is_held(pair: Pair | None, slots: Pair) -> bool:
    """Whether both matrices are in their slots, as wide as these but for the rank, with zeros
    around them; without a pair, zeros alone. vLLM takes narrower ones without a word."""
    slot_a, slot_b = slots
    if pair is None:
        return not slot_a.any() and not slot_b.any()
    a, b = (matrix.to(slot_a.device) for matrix in pair)
    rank = len(a)
    if (a.shape[1], b.shape) != (slot_a.shape[1], (slot_b.shape[0], rank)):
        return False
    rests = slot_a[rank:], slot_b[:, rank:]
    return bool((slot_a[:rank] == a).all() and (slot_b[:, :rank] == b).all()) and not any(
        rest.any() for rest in rests
    )
