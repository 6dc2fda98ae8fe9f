"""Whether vLLM holds the weights of a model that it was given, to the bit.

vLLM fuses, pads and deals out tensors, and only a model's own `load_weights` knows where each of
them goes. It is therefore asked to load them once more, while each write is only taken note of. It
is given the tensors' names and shapes, without content; where one goes, the digest of what lies
there is computed:

    load_weights    q_proj.weight -> qkv_proj.weight[:64].copy_(q)
    here            q_proj.weight -> sums_of(qkv_proj.weight[:64])

What vLLM turns into another form (quantized layers, experts for some kernels), or a model computes
with before it writes it, has no such digest. Which tensors can be compared is found out when the
engine starts, with the weights that vLLM has just read by itself.

Names used here that vLLM does not publish: the worker's `model_runner`.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mortal_steps.rollout.engines.model_files import tensors_in
from mortal_steps.rollout.engines.vllm.adapter import AdapterWitness
from mortal_steps.rollout.weight_sync.published import PublishedTensors
from mortal_steps.rollout.weight_sync.tensor_digests import (
    Sums,
    digest_of,
    dtype_of,
    read_sums,
    sums_of,
    tensor_digests,
)
from mortal_steps.system.faults import ends_process

logger = logging.getLogger(__name__)

Part = tuple[int, tuple[int, ...], tuple[int, ...]]
"""A part of a tensor: first element, shape and strides within that tensor."""
Held = tuple[tuple[Part, ...], str, Sums]
"""Parts of one tensor, which make all or some of it; the type in which a worker holds the parts;
and the sums of a tensor that has these parts and is 0 elsewhere."""


class Witness(AdapterWitness):
    """Methods that a worker of vLLM has beside its own (`worker_extension_cls`)."""

    def held(self, forms: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[str, list[Held]]:
        """Of each tensor of such a type and shape, by name, what this worker holds in its place."""
        destinations = _Destinations()
        empty = (
            (name, torch.empty(shape, dtype=getattr(torch, dtype), device="meta"))
            for name, (dtype, shape) in forms.items()
        )
        with torch.no_grad(), destinations:
            self.model_runner.get_model().load_weights(destinations.naming(empty))
        return destinations.read()


class _Destinations(TorchDispatchMode):  # type: ignore[misc]
    """Where the parts of each tensor go that a model loads; nothing is written."""

    def __init__(self) -> None:
        super().__init__()
        self._name = ""
        """Name of the tensor that is being loaded."""
        self._names: dict[int, str] = {}
        """Name of each tensor, by its storage's address."""
        self._tensors: dict[str, torch.Tensor] = {}
        self._parts: dict[str, list[tuple[Part, torch.Tensor]]] = defaultdict(list)
        self._computed: set[str] = set()
        """Names of tensors from which a worker writes something other than a part of the tensor."""

    def naming(
        self, pairs: Iterable[tuple[str, torch.Tensor]]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Hand the tensors on, and know which of them is being loaded."""
        for name, tensor in pairs:
            self._name = name
            self._tensors[name] = tensor
            self._names[tensor.untyped_storage()._cdata] = name
            yield name, tensor

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        aten, kwargs = torch.ops.aten, kwargs or {}
        if operation is aten.copy_.default:
            self._note(*args[:2])
            return args[0]
        if operation in (aten.fill_.Scalar, aten.fill_.Tensor, aten.zero_.default):
            return args[0]  # padding
        if operation is aten._to_copy.default and args[0].is_meta:
            if kwargs.get("dtype") in (None, args[0].dtype):
                return args[0]  # to where there is no content to go
            kwargs = {**kwargs, "device": "meta"}
        return operation(*args, **kwargs)

    def _note(self, held: torch.Tensor, given: torch.Tensor) -> None:
        storage = given.untyped_storage()._cdata
        name = self._names.get(storage, self._name)
        whole = self._tensors[name]
        if storage in self._names and given.shape == held.shape and given.dtype == whole.dtype:
            part = given.storage_offset(), tuple(given.shape), given.stride()
            self._parts[name].append((part, held))
        else:
            self._computed.add(name)

    def read(self) -> dict[str, list[Held]]:
        found: list[tuple[str, tuple[Part, ...], torch.dtype]] = []
        sums = []
        for name, parts in self._parts.items():
            whole = self._tensors[name]
            all_of_it = 0, tuple(whole.shape), whole.stride()
            pieces = [(part, held) for part, held in parts if part != all_of_it]
            geometry = tuple(sorted(part for part, _ in pieces))
            one_type = len({held.dtype for _, held in pieces}) <= 1
            if name in self._computed or len(set(geometry)) < len(geometry) or not one_type:
                continue
            for part, held in parts:
                if part == all_of_it:
                    found.append((name, (part,), held.dtype))
                    sums.append(sums_of(held))
            if pieces:
                found.append((name, geometry, pieces[0][1].dtype))
                sums.append(sums_of(_assembled(whole, pieces)))
        answers: dict[str, list[Held]] = defaultdict(list)
        for (name, geometry, dtype), read in zip(found, read_sums(sums), strict=True):
            answers[name].append((geometry, str(dtype).removeprefix("torch."), read))
        return dict(answers)


def _assembled(whole: torch.Tensor, pieces: list[tuple[Part, torch.Tensor]]) -> torch.Tensor:
    """Return a tensor of this shape that has these pieces, and 0 elsewhere."""
    held = pieces[0][1]
    made = torch.zeros(whole.shape, dtype=held.dtype, device=held.device)
    for (start, shape, strides), piece in pieces:
        made.as_strided(shape, strides, start).copy_(piece.detach())
    return made


def comparable_tensors(llm: Any, folder: Path) -> frozenset[str]:
    """Names of the tensors that can be compared, asked of an engine that has just read them."""
    forms = {
        name: (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        for name, tensor in tensors_in(folder)
    }
    held = _held_digests(llm, forms)
    # Each in the type that vLLM holds it in; a published version has that type.
    read = (
        (name, tensor.to(dtype_of(held[name])))
        for name, tensor in tensors_in(folder)
        if name in held
    )
    return frozenset(name for name, digest in tensor_digests(read).items() if held[name] == digest)


def compare(llm: Any, published: PublishedTensors, comparable: frozenset[str]) -> dict[str, bool]:
    """Of each tensor that can be compared, whether it is held as it was published."""
    forms = {
        name: (digest.partition(":")[0], published.shapes[name])
        for name, digest in published.digests.items()
        if name in comparable and name in published.shapes
    }
    held = _held_digests(llm, forms)
    return dict.fromkeys(forms.keys() - held.keys(), False) | published.matching(held)


def _held_digests(llm: Any, forms: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[str, str]:
    """Digests of the tensors, given by type and shape, that the workers hold all of, by name. One
    of which two workers hold different contents has none."""
    parts: dict[str, dict[tuple[Part, ...], tuple[str, Sums]]] = defaultdict(dict)
    torn = set()
    for answer in _answers(llm, forms):
        for name, entries in answer.items():
            for geometry, dtype, sums in entries:
                if parts[name].setdefault(geometry, (dtype, sums)) != (dtype, sums):
                    torn.add(name)
    digests = {}
    for name, contents in parts.items():
        shape = forms[name][1]
        size = sum(math.prod(part[1]) for geometry in contents for part in geometry)
        types = {dtype for dtype, _ in contents.values()}
        if name not in torn and size == math.prod(shape) and len(types) == 1:
            first, second = (sum(sums[i] for _, sums in contents.values()) for i in (0, 1))
            digests[name] = digest_of(getattr(torch, types.pop()), shape, (first, second))
    return digests


def _answers(llm: Any, forms: Mapping[str, tuple[str, tuple[int, ...]]]) -> list[Any]:
    """Return what each worker holds; nothing of a model whose `load_weights` needs the tensors'
    content, or takes none once its weights are packed."""
    if not forms:
        return []
    try:
        answers: list[Any] = llm.collective_rpc("held", args=(forms,))
    except Exception as error:  # what a `load_weights` raises is its own
        # A fault of the GPU, or lack of its memory, is not the model's own.
        if ends_process(error) or isinstance(error, torch.OutOfMemoryError):
            raise
        logger.warning(
            "vLLM's tensors cannot be compared with published ones; the probe's log-probabilities "
            "alone prove its weights",
            exc_info=True,
        )
        return []
    return answers
