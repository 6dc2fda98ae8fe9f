"""What the `vllm` engine asks of vLLM on a GPU, so that a shard that is sampled again has the same
bits: no kernel is chosen by a stopwatch, and no sum depends on which block comes first.

Names used here that vLLM does not publish: `is_batch_invariant` of its LoRA kernels' settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INDUCTOR = {"combo_kernels": False, "deterministic": True}
"""Of torch.compile. vLLM combines kernels where it measures that this is faster; `deterministic`
keeps the compiler from measuring anything else that decides bits."""
KERNELS = {"enable_flashinfer_autotune": False}


def with_fixed_kernels(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an `LLM`, without kernels that are chosen by measuring, but for what these
    options say of that themselves."""
    compilation = options.get("compilation_config", {})
    if isinstance(compilation, int):
        compilation = {"mode": compilation}
    inductor = {**INDUCTOR, **compilation.get("inductor_compile_config", {})}
    fixed = {
        **options,
        "compilation_config": {**compilation, "inductor_compile_config": inductor},
    }
    if "enable_flashinfer_autotune" not in options:
        fixed["kernel_config"] = {**KERNELS, **options.get("kernel_config", {})}
    return fixed


def add_adapters_in_order() -> None:
    """Let the kernel of LoRA add up in a fixed order. vLLM splits its sums among blocks, which add
    their parts as they finish, unless every kernel is to be batch invariant (VLLM_BATCH_INVARIANT);
    this one then does not split them."""
    from vllm.lora.ops.triton_ops import utils

    utils.is_batch_invariant = True
