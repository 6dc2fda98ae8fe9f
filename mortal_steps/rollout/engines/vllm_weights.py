"""Whether vLLM holds the weights of a model that it was given, to the bit.

vLLM fuses, pads and deals out tensors, and only a model's own `load_weights` knows where each of
them goes. It is therefore asked to load them once more, while each write is only taken note of. It
is given the tensors' names and shapes, without content; where one goes, the digest of what lies
there is computed:

    load_weights    q_proj.weight -> qkv_proj.weight[:64].copy_(q)
    here            q_proj.weight -> sums_of(qkv_proj.weight[:64])

What a model computes with before it writes it has no such digest: the tensors are then read again,
and compared with what lies where they go.

What vLLM turns into another form after loading (quantized layers, experts for some kernels) is not
what the model says. Which tensors can be compared is found out when the engine starts, with the
weights that vLLM has just read by itself.

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

from mortal_steps.rollout.engines.held_tensors import is_held, tensors_in
from mortal_steps.rollout.engines.vllm_adapter import AdapterWitness
from mortal_steps.rollout.weight_sync.published import PublishedTensors
from mortal_steps.rollout.weight_sync.tensor_digests import (
    Sums,
    digest_of,
    read_sums,
    sums_of,
)
from mortal_steps.system.faults import ends_process

logger = logging.getLogger(__name__)

Part = tuple[int, tuple[int, ...], tuple[int, ...]]
"""First element, shape and strides of a part, within the tensor that it is of."""
Held = tuple[tuple[Part, ...], str, Sums]
"""Parts of one tensor, which make all of it or some; the type in which a worker holds them; and the
sums of a tensor that has these parts, and 0 elsewhere."""


class Witness(AdapterWitness):
    """Methods that a worker of vLLM has beside its own (`worker_extension_cls`)."""

    def compared(self, folder: str) -> dict[str, bool]:
        """Of each tensor that has a place in this worker, by name, whether it is held there."""
        comparison = _Comparison()
        self._load(comparison, tensors_in(Path(folder)))
        return comparison.found

    def held(self, forms: Mapping[str, tuple[str, tuple[int, ...]]]) -> dict[str, list[Held]]:
        """Of each tensor of such a type and shape, by name, what this worker holds in its place."""
        places = _Places()
        empty = (
            (name, torch.empty(shape, dtype=getattr(torch, dtype), device="meta"))
            for name, (dtype, shape) in forms.items()
        )
        self._load(places, empty)
        return places.read()

    def _load(self, mode: _Writes, pairs: Iterable[tuple[str, torch.Tensor]]) -> None:
        with torch.no_grad(), mode:
            self.model_runner.get_model().load_weights(mode.naming(pairs))


class _Writes(TorchDispatchMode):  # type: ignore[misc]
    """Writes nothing, but takes note of what would be written."""

    def __init__(self) -> None:
        super().__init__()
        self._name = ""

    def naming(
        self, pairs: Iterable[tuple[str, torch.Tensor]]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in pairs:
            self._name = name
            self.begin(tensor)
            yield name, tensor

    def begin(self, tensor: torch.Tensor) -> None:
        """A tensor is about to be loaded."""

    def note(self, held: torch.Tensor, given: torch.Tensor) -> None:
        """`given` would be written over `held`."""

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        aten, kwargs = torch.ops.aten, kwargs or {}
        if operation is aten.copy_.default:
            self.note(*args[:2])
            return args[0]
        if operation in (aten.fill_.Scalar, aten.fill_.Tensor, aten.zero_.default):
            return args[0]  # padding
        if operation is aten._to_copy.default and args[0].is_meta:
            if kwargs.get("dtype") in (None, args[0].dtype):
                return args[0]  # to where there is no content to go
            kwargs = {**kwargs, "device": "meta"}
        return operation(*args, **kwargs)


class _Comparison(_Writes):
    """Of each tensor, whether all of it is there already."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, bool] = {}

    def note(self, held: torch.Tensor, given: torch.Tensor) -> None:
        before = self.found.get(self._name, True)
        self.found[self._name] = before and is_held(held, given)


class _Places(_Writes):
    """Where the parts of each tensor go."""

    def __init__(self) -> None:
        super().__init__()
        self._tensors: dict[str, torch.Tensor] = {}
        self._parts: dict[str, list[tuple[Part, torch.Tensor]]] = defaultdict(list)
        self._computed: set[str] = set()
        """Names of tensors of which something else is written than a part."""

    def begin(self, tensor: torch.Tensor) -> None:
        self._tensors[self._name] = tensor

    def note(self, held: torch.Tensor, given: torch.Tensor) -> None:
        whole = self._tensors[self._name]
        of_it = given.untyped_storage()._cdata == whole.untyped_storage()._cdata
        if of_it and given.shape == held.shape and given.dtype == whole.dtype:
            part = given.storage_offset(), tuple(given.shape), given.stride()
            self._parts[self._name].append((part, held))
        else:
            self._computed.add(self._name)

    def read(self) -> dict[str, list[Held]]:
        found, sums = [], []
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
    """A tensor of this shape that has these pieces, and 0 elsewhere."""
    held = pieces[0][1]
    made = torch.zeros(whole.shape, dtype=held.dtype, device=held.device)
    for (start, shape, strides), piece in pieces:
        made.as_strided(shape, strides, start).copy_(piece.detach())
    return made


def comparable_tensors(llm: Any, folder: Path) -> frozenset[str]:
    """Names of the tensors that can be compared, asked of an engine that has just read them."""
    try:
        return frozenset(name for name, same in _answers(llm, folder).items() if same)
    except Exception as error:
        _raise_if_of_gpu(error)
        # A layer whose weights have been packed takes no others; what it raises is its own.
        logger.warning(
            "vLLM's tensors cannot be compared with published ones; the probe's log-probabilities "
            "alone prove its weights",
            exc_info=True,
        )
        return frozenset()


def _raise_if_of_gpu(error: Exception) -> None:
    """Raise a fault of the GPU, or lack of its memory, anew: neither is the model's own."""
    if ends_process(error) or isinstance(error, torch.OutOfMemoryError):
        raise error


def held_tensors(
    llm: Any, published: PublishedTensors, comparable: frozenset[str]
) -> dict[str, bool]:
    """Of each tensor that can be compared, whether it is held as it was published."""
    forms = {
        name: (digest.partition(":")[0], published.shapes[name])
        for name, digest in published.digests.items()
        if name in comparable and name in published.shapes
    }
    try:
        digests, torn = _digests(llm, forms)
    except Exception as error:  # what a `load_weights` raises that looks at values is its own
        _raise_if_of_gpu(error)
        logger.warning(
            "vLLM's tensors are compared one by one: its model loads none without content",
            exc_info=True,
        )
        digests, torn = {}, set()
    found = published.matching(digests) | dict.fromkeys(torn, False)
    rest = comparable.intersection(published.shapes) - found.keys()
    if rest:
        published.reread |= rest
        answers = _answers(llm, published.folder)
        found |= {name: same for name, same in answers.items() if name in rest}
    return found


def _digests(
    llm: Any, forms: Mapping[str, tuple[str, tuple[int, ...]]]
) -> tuple[dict[str, str], set[str]]:
    """Digests of the tensors that the workers hold all of, by name; and the names of those of which
    two of them hold different contents."""
    parts: dict[str, dict[tuple[Part, ...], tuple[str, Sums]]] = defaultdict(dict)
    digests, torn = {}, set()
    for answer in llm.collective_rpc("held", args=(forms,)) if forms else ():
        for name, entries in answer.items():
            for geometry, dtype, sums in entries:
                if parts[name].setdefault(geometry, (dtype, sums)) != (dtype, sums):
                    torn.add(name)
    for name, contents in parts.items():
        shape = forms[name][1]
        size = sum(math.prod(part[1]) for geometry in contents for part in geometry)
        types = {dtype for dtype, _ in contents.values()}
        if size == math.prod(shape) and len(types) == 1:
            first, second = (sum(sums[i] for _, sums in contents.values()) for i in (0, 1))
            digests[name] = digest_of(getattr(torch, types.pop()), shape, (first, second))
    return digests, torn


def _answers(llm: Any, folder: Path) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for answer in llm.collective_rpc("compared", args=(str(folder),)):
        for name, same in answer.items():
            found[name] = found.get(name, True) and same
    return found
