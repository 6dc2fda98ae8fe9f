"""Errors of a worker: on their way to the caller, and those after which its process has to end.

After an illegal access, an error of its memory or a launch that failed, a GPU fails in every later
call of the process that used it, and serves a new one. So the call is repeated by a new process.
"""

import errno
import pickle
import traceback
from collections.abc import Iterable, Iterator

from mortal_steps.errors import (
    DiskError,
    MortalError,
    StoreError,
    UnusableProcessError,
    WorkerError,
)
from mortal_steps.system.disks import FULL_DISK, error_number

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


NO_MEMORY = (
    "The GPU has no memory left. If rollout workers share it, the run itself can continue with "
    "less: `mortal resume RUN --set KEY=VALUE` with rollout.sleep_while_training=true, with "
    "rollout.num_rollout_workers=1, or with a GPU of their own (compute.local.rollout.devices); no "
    "bit depends on these. Training takes less with more micro-batches, which round otherwise and "
    "are for a fork: `mortal fork RUN --set KEY=VALUE` with a larger "
    "training.gradient_accumulation_steps, a lower training.max_completion_length or a lower "
    "rollout.engine_options.gpu_memory_utilization. `mortal train CONFIG --dry-run` shows what "
    "each card needs"
)


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


def _with_causes(error: BaseException, *, contexts: bool = True) -> Iterator[BaseException]:
    """Yield the error and those that it was raised from and, with `contexts`, beside."""
    seen: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in seen:
        seen.append(following)
        yield following
        following = following.__cause__ or (following.__context__ if contexts else None)


def as_mortal_error(error: Exception) -> MortalError:
    """Return MORTAL's own error as it is, any other as a `WorkerError`, but one that the disk has
    brought about as a `DiskError`, whatever a library has made of it."""
    if not isinstance(error, StoreError) and (of_disk := _of_disk(error)) is not None:
        said = f"{error}" if of_disk is error else f"{error} ({of_disk})"
        return DiskError(
            f"{said}: a disk is full or fails. Nothing half-written counts: free space, or see to "
            f"the disk (`dmesg` may say more), then continue\n{_trace(error)}"
        )
    if isinstance(error, MortalError) and _survives_pickling(error):
        return error
    remedy = f"\n{NO_MEMORY}" if type(error).__name__ == "OutOfMemoryError" else ""  # torch's
    return WorkerError(f"{type(error).__name__}: {error}{remedy}\n{_trace(error)}")


def _of_disk(error: BaseException) -> BaseException | None:
    """Return the error itself, or the one that it was raised from, if the disk is to blame."""
    return next((each for each in _with_causes(error, contexts=False) if _blames_disk(each)), None)


def _blames_disk(error: BaseException) -> bool:
    """Return whether the disk is surely to blame. Code of the user's can have the same numbers from
    elsewhere: EIO of a terminal, which names no file, or ENXIO and ENODEV of a device."""
    number = error_number(error)
    if number == errno.EIO:
        return isinstance(error, OSError) and error.filename is not None
    return number in (*FULL_DISK, errno.EROFS, errno.ESTALE)


def _trace(error: Exception) -> str:
    return "".join(traceback.format_exception(error))


def _survives_pickling(error: Exception) -> bool:
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:  # noqa: BLE001 - whatever fails here would fail on the way to the caller
        return False
