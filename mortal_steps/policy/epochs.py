"""What an actor that learns from rows commits beside its steps: the order of each epoch, the loss
on held-out rows, and what is computed of the rows before training.

    data/reference                    what the reference model says of the prepared rows, if that
                                      is computed before training
    orders/000002.json                the rows of the third epoch, micro-batch by micro-batch
    evaluations/000012/metrics.json   TRL's metrics of the held-out rows after 12 steps
"""

import logging
from pathlib import Path
from typing import Any

from mortal_steps.data.prepared import ORDERS, REFERENCE
from mortal_steps.errors import CorruptFileError, StoreError
from mortal_steps.policy.batches.prepared_rows import EpochOrder
from mortal_steps.policy.state_manager import StateManager
from mortal_steps.store import RunStore
from mortal_steps.store.identity import read_identity
from mortal_steps.types import FileRef

logger = logging.getLogger(__name__)

METRICS = "metrics.json"


def order_file(epoch: int) -> str:
    return f"{ORDERS}/{epoch:06d}.json"


def prepared_folder(store: RunStore) -> Path:
    """Return the folder of the run's prepared rows, verified."""
    info = read_identity(store)
    if info is None or info.prepared_rows is None:
        raise StoreError(f"{store.root} has no prepared rows")
    return store.verify_folder(info.prepared_rows.path, info.prepared_rows.sha256)


def reference_folder(store: RunStore) -> Path | None:
    """Return the folder with what the reference model says of the rows, if it is there whole."""
    if not store.path(REFERENCE).exists():
        return None
    try:
        return store.verify_folder(REFERENCE, store.folder_digest(REFERENCE))
    except CorruptFileError as error:
        logger.warning("the reference model is asked again: %s", error)
        return None


def keep_reference(store: RunStore, stepper: Any) -> None:
    """Commit what the stepper's reference model has just said of the rows."""
    if stepper.has_computed_reference:
        with store.committing_folder(REFERENCE) as folder:
            stepper.save_reference(folder)


def draw_order(store: RunStore, states: StateManager, *, epoch: int, step: int) -> FileRef:
    """Commit the order of an epoch, of which `step` is the first, unless it is there."""
    path, otherwise = order_file(epoch), f"the order of epoch {epoch} is drawn again"
    found = store.find_whole(path, EpochOrder, otherwise)
    if found is not None:
        return found[0]
    stepper: Any = states.bring_to(step).stepper
    return store.write_record(path, stepper.draw_order(epoch), EpochOrder)


def evaluate(store: RunStore, states: StateManager, step: int) -> dict[str, float]:
    """Return the metrics of the held-out rows after `step` steps, computed once and committed."""
    path = f"evaluations/{step:06d}/{METRICS}"
    found = store.find_whole(path, dict[str, float], f"step {step} is evaluated again")
    if found is not None:
        return found[1]
    stepper: Any = states.bring_to(step).stepper
    metrics: dict[str, float] = stepper.evaluate()
    sizes = stepper.held_out_sizes()
    losses = {prefix: metrics.get(f"{prefix}loss") for prefix in sizes}
    named = metrics
    if list(sizes) == ["eval_"]:
        named = {name.removeprefix("eval_"): value for name, value in metrics.items()}
    elif None not in losses.values():  # over all rows, as other runs have the reward
        total = sum(losses[prefix] * size for prefix, size in sizes.items())
        named = {"loss": total / sum(sizes.values()), **metrics}
    store.write_record(path, named, dict[str, float])
    return named
