"""vLLM as a library of this process: how it is imported, and what is set in it for every engine."""

from __future__ import annotations

import ctypes
import logging
import os
import warnings
from typing import Any

from mortal_steps.errors import EngineError


def import_vllm() -> Any:
    """Import vLLM with the environment that it and torch read at import.

    Raises `EngineError` where it cannot be imported. Should be called before torch is imported,
    which reads its log level once.
    """
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
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


def require_libnuma() -> None:
    """Without it vLLM's compiled part is missing, which vLLM does not say."""
    try:
        ctypes.CDLL("libnuma.so.1")
    except OSError as error:
        raise EngineError(
            f"vLLM on a CPU needs the library libnuma ({error}): install it (Debian and Ubuntu: "
            "apt-get install libnuma1; Fedora: numactl-libs), or set rollout.engine = "
            "'transformers'"
        ) from error


def keep_weights_plain() -> None:
    """Switch off the prepacked copies of weights that CPU layers would compute with.

    Also switches off torch.compile, which costs seconds at the first batch of a CPU engine.
    """
    import torch
    from vllm import _custom_ops
    from vllm.model_executor.layers import utils

    torch._dynamo.config.disable = True
    _custom_ops._supports_onednn = False
    utils.check_cpu_sgl_kernel = lambda *args: False


def seed_worker(worker: Any, seed: int) -> None:
    """Seed whatever requests without a seed are drawn from: the streams of torch and of numpy."""
    from vllm.utils.torch_utils import set_random_seed

    set_random_seed(seed % 2**32)
