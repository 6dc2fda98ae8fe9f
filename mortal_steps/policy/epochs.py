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
from mortal_steps.policy import journal
from mortal_steps.policy.batches.prepared_rows import EpochOrder, PreparedRows
from mortal_steps.policy.on_disk import checkpoints
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
    if states.state is None or states.state.step != step:
        _draw_lost_before(store, states, step)
    stepper: Any = states.bring_to(step).stepper
    return store.write_record(path, stepper.draw_order(epoch), EpochOrder)


def _draw_lost_before(store: RunStore, states: StateManager, step: int) -> None:
    """Draw again what is damaged of the orders of the steps that are replayed on the way to `step`,
    which an epoch begins with."""
    saved, known = checkpoints.newest_whole(store, at_most=step), set[str]()
    for replayed in range(saved.step if saved else 0, step):
        batch = _batch_of(store, replayed)
        if batch is None or batch.order.path in known:
            continue
        known.add(batch.order.path)
        if store.find_whole(batch.order.path, EpochOrder, "it is drawn again") is None:
            epoch, first = int(Path(batch.order.path).stem), replayed
            while batch.first:
                first, batch = first - 1, _batch_of(store, first - 1)
                if batch is None:
                    raise CorruptFileError(
                        f"{store.path(order_file(epoch))} is damaged, and so is what tells where "
                        f"epoch {epoch} began: step {first} has no whole journal entry; restore "
                        "one of them from a copy, or train again under another --run-id"
                    )
            draw_order(store, states, epoch=epoch, step=first)


def _batch_of(store: RunStore, step: int) -> PreparedRows | None:
    entry = journal.find_entry(store, step)
    batch = None if entry is None else entry.request.batch
    return batch if isinstance(batch, PreparedRows) else None


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
