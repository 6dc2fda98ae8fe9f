"""Whether vLLM holds the weights of a model that it was given, to the bit.

vLLM fuses, pads and deals out tensors, and only a model's own `load_weights` knows where each of
them goes. It is therefore asked to load them once more, while each write is replaced by a
comparison:

    load_weights    q_proj.weight -> qkv_proj.weight[:64].copy_(q)
    here            q_proj.weight -> torch.equal(qkv_proj.weight[:64], q)

What vLLM turns into another form after loading (quantized layers, experts for some kernels) is not
what the model says. Which tensors can be compared is found out when the engine starts, with the
weights that vLLM has just read by itself.

Every process of vLLM that holds a part of the model imports this module before it builds it.

Names used here that vLLM does not publish: the worker's `model_runner`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from vllm.platforms import current_platform

from mortal_steps.rollout.engines import vllm_cpu, vllm_gpu
from mortal_steps.rollout.engines.held_tensors import is_held, tensors_in
from mortal_steps.rollout.engines.vllm_adapter import AdapterWitness

logger = logging.getLogger(__name__)

if current_platform.is_cpu():
    vllm_cpu.keep_weights_plain()
else:
    vllm_gpu.add_adapters_in_order()

Given = str | Mapping[str, torch.Tensor]
"""A folder, or tensors by name."""


class Witness(AdapterWitness):
    """Methods that a worker of vLLM has beside its own (`worker_extension_cls`)."""

    def compared(self, given: Given) -> dict[str, bool]:
        """Of each tensor that has a place in this worker, by name, whether it is held there."""
        comparison = _Comparison()
        pairs = tensors_in(Path(given)) if isinstance(given, str) else iter(given.items())
        with torch.no_grad(), comparison:
            self.model_runner.get_model().load_weights(comparison.naming(pairs))
        return comparison.found


class _Comparison(TorchDispatchMode):  # type: ignore[misc]
    """Writes nothing: notes of each tensor whether all of it is there already."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, bool] = {}
        self._name = ""

    def naming(
        self, pairs: Iterable[tuple[str, torch.Tensor]]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in pairs:
            self._name = name
            yield name, tensor

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        aten = torch.ops.aten
        if operation is aten.copy_.default:
            held, given = args[:2]
            before = self.found.get(self._name, True)
            self.found[self._name] = before and is_held(held, given)
            return held
        if operation in (aten.fill_.Scalar, aten.fill_.Tensor, aten.zero_.default):
            return args[0]  # padding
        return operation(*args, **(kwargs or {}))


def comparable_tensors(llm: Any, given: Given) -> frozenset[str]:
    """Names of the tensors that can be compared, asked of an engine that has just read them."""
    try:
        return frozenset(name for name, same in _answers(llm, given).items() if same)
    except Exception:
        # A layer whose weights have been packed takes no others; what it raises is its own.
        logger.warning(
            "vLLM's tensors cannot be compared with published ones; the probe's log-probabilities "
            "alone prove its weights",
            exc_info=True,
        )
        return frozenset()


def differing_tensors(llm: Any, given: Given, comparable: frozenset[str]) -> list[str]:
    """Names of the tensors that are not held as they are given."""
    if not comparable:
        return []
    return sorted(n for n, same in _answers(llm, given).items() if n in comparable and not same)


def _answers(llm: Any, given: Given) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for answer in llm.collective_rpc("compared", args=(given,)):
        for name, same in answer.items():
            found[name] = found.get(name, True) and same
    return found
