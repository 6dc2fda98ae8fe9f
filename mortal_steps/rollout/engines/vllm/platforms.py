"""What the `vllm` engine asks of vLLM on a CPU and on a GPU.

On a GPU, a shard that is sampled again has the same bits: no kernel is chosen by a stopwatch, and
no sum depends on which block comes first.

Names used here that vLLM does not publish: `is_batch_invariant` of its LoRA kernels' settings, and
what `keep_weights_plain` switches off.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from typing import Any

from mortal_steps.config import RolloutConfig
from mortal_steps.errors import EngineError
from mortal_steps.models.shape import cache_bytes_per_token, is_recurrent

MIN_KV_CACHE_BYTES = 64 << 20
KV_CACHE_SEQUENCES = 4
"""Sequences of full length that the key-value cache has room for."""
INDUCTOR = {"combo_kernels": False, "deterministic": True}
"""Of torch.compile. vLLM combines kernels where it measures that this is faster; `deterministic`
keeps the compiler from measuring anything else that decides bits."""
KERNELS = {"enable_flashinfer_autotune": False}


def cpu_options(settings: Mapping[str, Any], max_model_len: int) -> dict[str, Any]:
    """Return options of an `LLM` for a model with these `settings`, those of its config.json."""
    per_token = cache_bytes_per_token(settings)
    return {
        # Of recurrent layers vLLM caches prefixes only in chunks.
        **({"enable_prefix_caching": False} if is_recurrent(settings) else {}),
        "enforce_eager": True,
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(max_model_len, 2048),
        "kv_cache_memory_bytes": max(
            MIN_KV_CACHE_BYTES, KV_CACHE_SEQUENCES * per_token * max_model_len
        ),
    }


def fit_to_cpu(options: dict[str, Any], rollout: RolloutConfig) -> None:
    """Take out of an `LLM`'s options what has no meaning on a CPU. Raises `EngineError` for a
    combination at which vLLM would end."""
    options.pop("gpu_memory_utilization", None)  # CPU memory is the bound there
    if options["enable_chunked_prefill"] and rollout.seeds == "request":
        raise EngineError(
            "rollout.engine_options.enable_chunked_prefill = True: on a CPU, vLLM ends at the "
            "first chunk of a prompt whose completion has a seed of its own. Leave it out, or set "
            'rollout.seeds = "engine"'
        )


def require_libnuma() -> None:
    """Raise `EngineError` without it: vLLM's compiled part is then silently missing."""
    try:
        ctypes.CDLL("libnuma.so.1")
    except OSError as error:
        raise EngineError(
            f"vLLM on a CPU needs the library libnuma ({error}): install it (Debian and Ubuntu: "
            "apt-get install libnuma1; Fedora: numactl-libs), or set rollout.engine = "
            "'transformers'"
        ) from error


def keep_weights_plain() -> None:
    """Switch off CPU layers' prepacked copies of weights, and torch.compile, which costs seconds at
    the first batch."""
    import torch
    from vllm import _custom_ops
    from vllm.model_executor.layers import utils

    torch._dynamo.config.disable = True
    _custom_ops._supports_onednn = False
    utils.check_cpu_sgl_kernel = lambda *args: False
    _pack_experts_at_each_load()


def _pack_experts_at_each_load() -> None:
    """Let experts be packed for their kernel again when new weights are loaded: vLLM packs those
    that a CPU engine starts with alone, and would compute with new ones as if they were packed."""
    from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import (
        UnquantizedFusedMoEMethod,
    )

    set_up = UnquantizedFusedMoEMethod._setup_kernel
    if hasattr(set_up, "__wrapped__"):
        return

    @functools.wraps(set_up)
    def set_up_anew(self: Any, *args: Any, **options: Any) -> None:
        self.moe_kernel = None
        set_up(self, *args, **options)

    UnquantizedFusedMoEMethod._setup_kernel = set_up_anew


def with_fixed_kernels(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return `LLM` options without kernels chosen by measuring, unless they say so."""
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
