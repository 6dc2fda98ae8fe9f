"""Which errors a process does not survive."""

import pytest
import torch

from mortal_steps.errors import EngineError, UnusableProcessError
from mortal_steps.system.faults import ends_process


@pytest.mark.parametrize(
    "error",
    [
        torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nCUDA kernel"),
        torch.AcceleratorError("CUDA error: uncorrectable ECC error encountered"),
        RuntimeError("CUDA error: unspecified launch failure"),
        RuntimeError("Worker failed with error 'CUDA error: an illegal memory access'"),
        RuntimeError("CUDA Error: invalid argument at /workspace/csrc/cumem_allocator.cpp:90"),
        RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"),
        RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
        UnusableProcessError("vLLM does not wake up"),
    ],
)
def test_a_fault_of_the_gpu_ends_the_process(error):
    assert ends_process(error)
    wrapped = EngineError("vLLM refused a batch")
    wrapped.__cause__ = error
    assert ends_process(wrapped)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        torch.AcceleratorError("CUDA error: out of memory"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        torch.AcceleratorError("CUDA error: no kernel image is available for execution"),
        EngineError("CUDA error: as a text of its own"),
        ValueError("a value"),
    ],
)
def test_other_errors_leave_it_as_it_is(error):
    assert not ends_process(error)
