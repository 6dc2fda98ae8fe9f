"""Converts an exception in a worker to one that the caller can raise."""

from __future__ import annotations

import pickle
import traceback

from mortal_steps.errors import MortalError, WorkerError

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
