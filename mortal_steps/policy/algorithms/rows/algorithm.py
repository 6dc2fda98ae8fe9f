"""An algorithm that one of TRL's dataset trainers computes.

Nothing here imports torch or TRL before an algorithm is checked: configurations are read with it.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from mortal_steps.config import RolloutConfig, TrainingConfig
from mortal_steps.data.prepared import Preparation
from mortal_steps.errors import ConfigError, DataError
from mortal_steps.policy.algorithms.base import Stepper
from mortal_steps.policy.algorithms.rows.epochs import (
    micro_batch_size,
    num_micro_batches,
    num_steps,
)
from mortal_steps.policy.algorithms.trl_algorithm import TrlAlgorithm
from mortal_steps.policy.algorithms.trl_hooks import changed
from mortal_steps.policy.batches.prepared_rows import PreparedRows
from mortal_steps.policy.plan import TrainerPlan
from mortal_steps.types import Problem

OF_COMPLETIONS = (
    *("num_generations", "loss_type", "beta", "epsilon", "epsilon_high", "scale_rewards"),
    *("num_iterations", "max_completion_length", "importance_sampling_correction"),
)
"""Keys of `[training]` that are about sampled completions."""


class RowsAlgorithm(TrlAlgorithm):
    """An algorithm that learns from rows of a dataset, which TRL prepares once."""

    source = "rows"
    judges_by_loss = True
    trains_on = PreparedRows
    rows_in_words: ClassVar[str]
    """The columns that TRL's trainer takes, for people."""
    columns: ClassVar[tuple[str, ...]] = ()
    """Those that it looks for in a row, each of which is checked."""

    def check(self, plan: TrainerPlan) -> tuple[str, ...]:
        _check_batch(plan.training)
        _check_ranks(plan.training)
        return super().check(plan) + _orders_of_ranks(plan.training)

    def prepare(
        self,
        plan: TrainerPlan,
        train: Sequence[Problem],
        held_out: Sequence[Problem],
        *,
        folder: Path,
    ) -> Preparation:
        """See `prepare_rows`. Raises `DataError` if TRL would drop all rows as the rest of an
        epoch."""
        from mortal_steps.policy.algorithms.rows.preparing import prepare_rows

        came = prepare_rows(
            *(self, plan, train, held_out),
            small_model=self.small_model,
            columns=partial(self.columns_of, plan.training),
            takes=self.rows_in_words,
            folder=folder,
        )
        if not num_micro_batches(came.num_rows, plan.training):
            raise DataError(
                f"no row is left to train on: training.trl.dataloader_drop_last = true drops what "
                f"makes no whole micro-batch, as do all of the prepared rows, which are "
                f"{came.num_rows}; leave it out, or lower training.batch_size"
            )
        return came

    def columns_of(self, training: TrainingConfig, first: Mapping[str, Any]) -> Sequence[str]:
        """Return the columns that TRL's trainer looks for with these options in a set of rows,
        which it tells by the `first` one."""
        return self.columns

    def num_steps(self, prepared: Path, training: TrainingConfig) -> int:
        """Return the train steps of a run on the rows that were prepared in a folder."""
        from mortal_steps.policy.algorithms.rows.preparing import open_prepared

        return num_steps(len(open_prepared(prepared)["train"]), training)

    def small_model(self, folder: Path) -> Any:
        """Return a model of next to no size, of the kind that the trainer takes."""
        from transformers import AutoModelForCausalLM

        from mortal_steps.policy.algorithms.stepping.dry_run import SMALL
        from mortal_steps.policy.starting_model.new_model import build_model

        build_model(folder, SMALL, seed=0)
        return AutoModelForCausalLM.from_pretrained(folder)

    def check_built(self, training: TrainingConfig, rollout: RolloutConfig, built: Any) -> None:
        """Raise `ConfigError` for what means nothing to rows, or contradicts itself."""
        for key, value in changed(training, OF_COMPLETIONS).items():
            raise ConfigError(
                f"training.{key} = {value!r}: algorithm.type = {self.type!r} learns from rows "
                "of the dataset, and nothing is sampled or rewarded; leave it out"
            )
        if getattr(built, "precompute_ref_log_probs", False) and built.sync_ref_model:
            raise ConfigError(
                "training.trl.precompute_ref_log_probs = true asks the reference model before "
                "training, and training.trl.sync_ref_model = true moves it during training; leave "
                "one of the two out"
            )
        if (getattr(built, "dataset_kwargs", None) or {}).get("skip_prepare_dataset"):
            raise ConfigError(
                "training.trl.dataset_kwargs.skip_prepare_dataset: TRL prepares the rows before "
                "the run begins, and takes rows that hold tokens as they are; leave it out"
            )

    def options_of_run(self, training: TrainingConfig) -> dict[str, Any]:
        return {"per_device_train_batch_size": micro_batch_size(training)}

    def stepper(self, plan: TrainerPlan, **options: Any) -> Stepper:
        from mortal_steps.policy.algorithms.rows.stepper import RowsStepper

        return RowsStepper(self, plan, **options)


def _check_batch(training: TrainingConfig) -> None:
    """Raise `ConfigError` unless the rows of a step divide into its micro-batches."""
    size, pieces = training.batch_size, training.accumulation_steps
    if size % pieces:
        raise ConfigError(
            f"training.gradient_accumulation_steps = {pieces} does not divide the "
            f"training.batch_size = {size} rows of a step into micro-batches of one size; choose a "
            "divisor of it"
        )


def _check_ranks(training: TrainingConfig) -> None:
    """Raise `ConfigError` unless a micro-batch has as many rows for each rank, dealt out as TRL
    does by default."""
    size, pieces, ranks = training.batch_size, training.accumulation_steps, training.ranks
    if ranks == 1:
        return
    if size // pieces % ranks:
        raise ConfigError(
            f"training.ranks = {ranks} does not divide the {size // pieces} rows of a micro-batch "
            f"(training.batch_size = {size}, in {pieces}); choose training.batch_size or "
            "training.gradient_accumulation_steps so that each rank has as many rows"
        )
    if "accelerator_config" in training.trl:
        raise ConfigError(
            "training.trl.accelerator_config says how rows are dealt out to several ranks, which "
            f"training.ranks = {ranks} decides; leave it out"
        )


def _orders_of_ranks(training: TrainingConfig) -> tuple[str, ...]:
    """Return a sentence for ranks that TRL lets draw their rows apart."""
    sampler = "group_by_length"
    if training.ranks == 1 or training.trl.get("train_sampling_strategy") != sampler:
        return ()
    return (
        f"training.trl.train_sampling_strategy = {sampler!r} with training.ranks = "
        f"{training.ranks}: in TRL, each rank draws the order of an epoch from its own random "
        "stream. Once these differ, as they do with dropout, an epoch has some rows twice and "
        "others not at all",
    )
