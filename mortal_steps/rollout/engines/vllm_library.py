"""vLLM as a library of this process: how it is imported, and what is set in it for every engine."""

from __future__ import annotations

import logging
import os
import traceback
import warnings
from typing import Any

from mortal_steps.errors import EngineError
from mortal_steps.rollout.engines.base import SampledTokens


def import_vllm() -> Any:
    """Import vLLM with the environment that it and torch read at import.

    Raises `EngineError` where it cannot be imported. Should be called before torch is imported,
    which reads its log level once.
    """
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    # Attention in float32 has Triton's kernels, which would cut to ten bits what they multiply.
    os.environ.setdefault("TRITON_F32_DEFAULT", "ieee")
    level = os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    logging.getLogger("vllm").setLevel(level)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"vllm\.")
    try:
        import vllm
        import vllm.platforms
    except ImportError as error:
        raise EngineError(
            f"rollout.engine = 'vllm', but this Python cannot import vLLM ({error}); name an "
            "interpreter that can with compute.local.rollout.python, or set rollout.engine = "
            "'transformers'"
        ) from error
    return vllm


def told_by(error: Exception) -> str:
    """What vLLM says of an error; of an assertion that says nothing, where it is."""
    if str(error):
        return str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} ({place.filename}, line {place.lineno}: {place.line})"


def seed_worker(worker: Any, seed: int) -> None:
    """Seed whatever requests without a seed are drawn from: the streams of torch and of numpy."""
    from vllm.utils.torch_utils import set_random_seed

    set_random_seed(seed % 2**32)


def sampled_tokens(output: Any) -> SampledTokens:
    """A completion out of vLLM's; raises `EngineError` for one that is not whole."""
    token_ids, logprobs = list(output.token_ids), list(output.logprobs.logprobs)
    if len(logprobs) != len(token_ids) or output.finish_reason not in ("stop", "length"):
        raise EngineError(
            f"vLLM gave {len(token_ids)} tokens with {len(logprobs)} logprobs and ended with "
            f"{output.finish_reason!r}"
        )
    return SampledTokens(token_ids=token_ids, logprobs=logprobs, finish_reason=output.finish_reason)
