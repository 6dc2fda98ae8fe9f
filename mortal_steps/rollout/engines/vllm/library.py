"""vLLM as a library of this process: how it is imported, and what is set in it for every engine."""

from __future__ import annotations

import functools
import logging
import os
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from mortal_steps.errors import EngineError, UnusableProcessError
from mortal_steps.rollout.engines.base import SampledTokens
from mortal_steps.rollout.engines.vllm.platforms import require_libnuma
from mortal_steps.types import SamplingParams


def import_vllm() -> tuple[Any, bool]:
    """Import vLLM, before torch, which reads its log level once, with the environment that both
    read then. Return it, and whether it computes on the CPU. Raises `EngineError` if it, or what it
    needs on a CPU, is missing."""
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
    on_cpu = bool(vllm.platforms.current_platform.is_cpu())
    if on_cpu:
        require_libnuma()
    return vllm, on_cpu


def message_of(error: Exception) -> str:
    """Return what vLLM says of an error; of an assertion that says nothing, where it is."""
    if str(error):
        return str(error)
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} ({frame.filename}, line {frame.lineno}: {frame.line})"


def supervised(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method of the engine raise `UnusableProcessError` if it fails because one of the
    processes that vLLM has spread the model over (`tensor_parallel_size`) is lost."""

    @functools.wraps(method)
    def call(engine: Any, *args: Any, **options: Any) -> Any:
        try:
            return method(engine, *args, **options)
        except Exception as error:
            check_processes(engine._llm, error)
            raise

    return call


def check_processes(llm: Any, error: Exception | None = None) -> None:
    """Raise `UnusableProcessError` from `error` unless all of vLLM's processes live."""
    executor = llm.llm_engine.model_executor
    workers = getattr(executor, "workers", None) or ()  # none where vLLM needs no other process
    if getattr(executor, "is_failed", False) or any(not one.proc.is_alive() for one in workers):
        raise UnusableProcessError("vLLM has lost one of its processes") from error


def wake_wholly(llm: Any) -> None:
    """Let vLLM take back all memory, before it is ended: what an engine that sleeps has freed would
    be freed once more then, and no other engine could start in this process. Raises
    `UnusableProcessError` if it cannot."""
    check_processes(llm)
    try:
        if llm.llm_engine.is_sleeping():
            llm.wake_up()
    except Exception as error:
        raise UnusableProcessError(
            f"vLLM does not wake up, so nothing can be started in its place: {message_of(error)}"
        ) from error


def request(vllm: Any, params: SamplingParams, seed: int | None) -> Any:
    """vLLM's parameters for one completion."""
    return vllm.SamplingParams(
        max_tokens=params.max_tokens,
        temperature=params.temperature,
        top_p=params.top_p,
        top_k=params.top_k,
        min_p=params.min_p,
        stop=list(params.stop),
        include_stop_str_in_output=True,
        # Stop strings are found in text; without any, no text is needed.
        detokenize=bool(params.stop),
        seed=seed,
        logprobs=0,
        flat_logprobs=True,
        skip_clone=True,
    )


def seed_worker(worker: Any, seed: int) -> None:
    """Seed whatever requests without a seed are drawn from: the streams of torch and of numpy."""
    from vllm.utils.torch_utils import set_random_seed

    set_random_seed(seed % 2**32)


def sampled_tokens(output: Any) -> SampledTokens:
    """Return a completion out of vLLM's; raises `EngineError` for one that is not whole."""
    token_ids, logprobs = list(output.token_ids), list(output.logprobs.logprobs)
    if len(logprobs) != len(token_ids) or output.finish_reason not in ("stop", "length"):
        raise EngineError(
            f"vLLM gave {len(token_ids)} tokens with {len(logprobs)} logprobs and ended with "
            f"{output.finish_reason!r}"
        )
    return SampledTokens(token_ids=token_ids, logprobs=logprobs, finish_reason=output.finish_reason)
