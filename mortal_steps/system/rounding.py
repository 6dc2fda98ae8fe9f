"""Environment variables that decide how libraries round, and so the bits of a run.

A run notes those that are set when it begins. Its workers on this machine have these and no others
of them, whatever the environment says from which it is continued.
"""

import fnmatch
import os
from collections.abc import Mapping

ROUNDING = (
    # Instruction sets: torch, MKL, oneDNN, OpenBLAS, numpy.
    "ATEN_CPU_CAPABILITY",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "MKL_DEBUG_CPU_TYPE",
    "ONEDNN_*",
    "DNNL_*",
    "OPENBLAS_CORETYPE",
    "NPY_DISABLE_CPU_FEATURES",
    "NPY_ENABLE_CPU_FEATURES",
    # How many threads share a sum, where OMP_NUM_THREADS does not decide it.
    "MKL_NUM_THREADS",
    "MKL_DOMAIN_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "OMP_THREAD_LIMIT",
    "OMP_DYNAMIC",
    # GPUs: types and algorithms of matrix kernels.
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_BLAS_PREFER_CUBLASLT",
    "TORCH_BLAS_PREFER_HIPBLASLT",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUBLASLT_WORKSPACE_SIZE",
    "ROCBLAS_*",
    # The type that accelerate trains in, and more of that kind.
    "ACCELERATE_*",
    # Which kernels compilers and vLLM choose.
    "TORCHINDUCTOR_*",
    "TRITON_*",
    "VLLM_ATTENTION_BACKEND",
    "VLLM_BATCH_INVARIANT",
    "VLLM_ENABLE_INDUCTOR_*",
    "VLLM_TUNED_CONFIG_FOLDER",
    "VLLM_USE_FLASHINFER_*",
    "VLLM_USE_V2_MODEL_RUNNER",
    # In which order GPUs that share a model add up.
    "NCCL_ALGO",
    "NCCL_NVLS_ENABLE",
    "NCCL_PROTO",
    "NCCL_M*_CTAS",
    "NCCL_M*_NCHANNELS",
)
"""Patterns of names. PYTORCH_CUDA_ALLOC_CONF is none of them: it decides where tensors lie, and
nothing about what is computed with them."""
FOLDERS = ("*_CACHE_DIR", "*_DUMP_DIR", "*_HOME")
"""Patterns of names that fit, but of variables that only say where files are kept."""


def rounding_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    return {name: value for name, value in sorted(environment.items()) if decides_rounding(name)}


def decides_rounding(name: str) -> bool:
    return _fits(name, ROUNDING) and not _fits(name, FOLDERS)


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
