"""Errors after which a process can compute no more, so that it has to end.

After an illegal access, an error of its memory or a launch that failed, a GPU fails in every later
call of the process that used it, and serves a new one. So the call is repeated by a new process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mortal_steps.errors import UnusableProcessError

FAULTS = (
    "CUDA error",
    "Triton Error [CUDA]",
    "illegal memory access",
    "unspecified launch failure",
    "CUDNN_STATUS_EXECUTION_FAILED",
)
"""What the message of such an error of torch, Triton or vLLM contains, one of these; torch's type
for it is `AcceleratorError`, but not everywhere."""
NO_FAULTS = (
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "no kernel image is available",
    "invalid device ordinal",
    "driver version is insufficient",
    "unsupported toolchain",
)
"""What it contains where the GPU itself is well: a new process would fail in the same way."""


def ends_process(error: BaseException) -> bool:
    """Whether the process in which this was raised can compute no more."""
    return any(
        isinstance(each, UnusableProcessError)
        or (isinstance(each, RuntimeError) and _is_fault(str(each)))
        for each in _with_causes(error)
    )


def _is_fault(message: str) -> bool:
    said = message.casefold()

    def has_one(texts: Iterable[str]) -> bool:
        return any(text.casefold() in said for text in texts)

    return has_one(FAULTS) and not has_one(NO_FAULTS)


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in seen:
        seen.append(following)
        yield following
        following = following.__cause__ or following.__context__
