"""Converts an exception in a worker to one that the caller can raise."""

from __future__ import annotations

import pickle
import traceback

from mortal_steps.errors import MortalError, WorkerError

NO_MEMORY = (
    "The GPU has no memory left. In training, raise training.gradient_accumulation_steps, which "
    "takes fewer completions at a time, or lower training.max_completion_length. If rollout "
    "workers share the GPU, lower rollout.engine_options.gpu_memory_utilization, set "
    "rollout.sleep_while_training = true, or give them a GPU of their own"
)


def as_mortal_error(error: Exception) -> MortalError:
    """The error for the caller: MORTAL's own errors stay as they are, others become a
    `WorkerError`."""
    if isinstance(error, MortalError) and _survives_pickling(error):
        return error
    trace = "".join(traceback.format_exception(error))
    remedy = f"\n{NO_MEMORY}" if type(error).__name__ == "OutOfMemoryError" else ""  # torch's
    return WorkerError(f"{type(error).__name__}: {error}{remedy}\n{trace}")


def _survives_pickling(error: Exception) -> bool:
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:  # noqa: BLE001 - whatever fails here would fail on the way to the caller
        return False
