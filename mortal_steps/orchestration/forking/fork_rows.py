"""The rows of a fork that learns from rows, and how it counts their epochs:

its parent's rows                      the epoch under way goes on in its order
these, in steps of another size        the next epoch begins with the fork
other rows, or prepared otherwise      epoch 0 begins with the fork
"""

from collections.abc import Callable, Collection
from dataclasses import replace

from mortal_steps.config import TrainingConfig
from mortal_steps.config.trl_options import options_of
from mortal_steps.data.prepared import Prepared, same_rows
from mortal_steps.errors import ConfigError
from mortal_steps.policy.algorithms.rows.epochs import Epochs, epochs_of, micro_batch_size
from mortal_steps.policy.batches.prepared_rows import EpochOrder
from mortal_steps.policy.epochs import order_file, prepared_folder
from mortal_steps.runs.run import Run
from mortal_steps.types.identity import CountedFrom

PREPARED_ALIKE = (
    *("name", "logging", "evaluation", "checkpoints", "compute"),
    *("training.learning_rate", "training.num_epochs", "training.max_steps"),
    *("training.gradient_checkpointing", "training.deterministic", "training.lora.dropout"),
)
"""Keys and sections that have no part in how rows are prepared."""
CUT = (
    *("training.batch_size", "training.gradient_accumulation_steps"),
    *("training.trl.dataloader_drop_last", "training.trl.train_sampling_strategy"),
)
"""Keys by which the rows of an epoch are cut into steps."""


def rows_of_parent(parent: Run, changes: Collection[str]) -> Prepared | None:
    """Return the parent's prepared rows if the fork's would be prepared alike; None if they have to
    be prepared before anybody knows. transformers' own options have no part in it."""
    of_transformers = {f"training.trl.{name}" for name in options_of("TrainingArguments")}
    alike = tuple(f"{each}." for each in (*PREPARED_ALIKE, *of_transformers))
    if not all(f"{key}.".startswith(alike) for key in changes):
        return None
    assert parent.info.num_prepared is not None
    return Prepared(folder=prepared_folder(parent.store), num_rows=parent.info.num_prepared)


def count_on(
    parent: Run,
    rows: Prepared,
    training: TrainingConfig,
    step: int,
    changes: Collection[str],
    tell: Callable[[str], None],
) -> Prepared:
    """Return the rows of a fork at `step` with where it counts epochs from. Raises `ConfigError`
    for steps of another size in the middle of an epoch."""
    name, before = parent.info.run_id, epochs_of_run(parent)
    if not same_rows(prepared_folder(parent.store), rows.folder):
        tell(f"{'rows':<11}they are not those of {name}: their epoch 0 begins at step {step}")
        return replace(rows, counted_from=CountedFrom(step=step))
    after = epochs_of(rows.num_rows, training, before.counted_from)
    sizes = {micro_batch_size(each) for each in (training, parent.config.training)}
    if after == before and len(sizes) == 1:
        return replace(rows, counted_from=before.counted_from)
    epoch = before.epoch(step)
    if before.begins(step):
        return replace(rows, counted_from=CountedFrom(step=step, epoch=epoch))
    first, stop = before.first_step(epoch), before.first_step(epoch + 1)
    changed = " and ".join(key for key in CUT if key in changes)
    raise ConfigError(
        f"{changed} cannot be changed here: {name} at step {step} is in the middle of epoch "
        f"{epoch} (steps {first} to {stop - 1}), whose order is cut into steps already. Fork where "
        f"an epoch begins (--at-step {first or stop}, if there is a checkpoint), or leave this as "
        "it was"
    )


def order_under_way(parent: Run, rows: Prepared, step: int) -> str | None:
    """Return the parent's file with the order in which a fork goes on; None where an epoch begins.
    Raises `CorruptFileError` if it is damaged."""
    epochs = epochs_of_run(parent)
    if epochs.begins(step) or rows.counted_from != epochs.counted_from:
        return None
    path = order_file(epochs.epoch(step))
    parent.store.find_record(path, EpochOrder)
    return path


def epochs_of_run(run: Run) -> Epochs:
    """Return the epochs of a run that learns from rows."""
    assert run.info.num_prepared is not None
    return epochs_of(run.info.num_prepared, run.config.training, run.info.counted_from)
