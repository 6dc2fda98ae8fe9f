"""`type = "kto"`: Kahneman-Tversky optimization, by TRL's own KTOTrainer.

KTO is https://arxiv.org/abs/2402.01306. tests/integration/policy/test_rows_parity.py compares it,
bit for bit, with stock `KTOTrainer.train()`.
"""

from typing import Annotated, Any, ClassVar, Literal

from mortal_steps.config import RolloutConfig, TrainingConfig
from mortal_steps.config.field_metadata import STATE
from mortal_steps.errors import ConfigError
from mortal_steps.policy.algorithms.rows.algorithm import RowsAlgorithm


class KTO(RowsAlgorithm, extra="forbid"):
    """Kahneman-Tversky optimization: answers that are good or bad, each by itself. Options of TRL's
    KTOConfig without a key of their own go into `[training.trl]`."""

    trl_config: ClassVar[str] = "KTOConfig"
    rows_in_words: ClassVar[str] = "the columns `prompt`, `completion` and `label`, true or false"
    columns: ClassVar[tuple[str, ...]] = ("prompt", "completion", "label")
    type: Annotated[str, STATE] = "kto"
    loss_type: Literal["kto", "apo_zero_unpaired"] = "kto"
    """`kto` estimates the divergence from the reference model with answers to other prompts of the
    same micro-batch, which must hold two rows or more, in the order of the dataset."""
    beta: float = 0.1
    """How much the policy is held to the reference model: more keeps it closer."""
    desirable_weight: float = 1.0
    """Weight of good answers in the loss."""
    undesirable_weight: float = 1.0
    """Weight of bad answers in the loss."""

    def options(self) -> dict[str, Any]:
        names = ("loss_type", "beta", "desirable_weight", "undesirable_weight")
        return {name: getattr(self, name) for name in names}

    def check_built(self, training: TrainingConfig, rollout: RolloutConfig, built: Any) -> None:
        super().check_built(training, rollout, built)
        if built.loss_type != "kto":
            return
        strategy = built.train_sampling_strategy
        if strategy != "sequential":
            raise ConfigError(
                f"training.trl.train_sampling_strategy = {strategy!r}: algorithm.loss_type = 'kto' "
                "compares rows of the same micro-batch, in the order of the dataset; leave it out"
            )
        if built.per_device_train_batch_size < 2:
            raise ConfigError(
                f"training.batch_size = {training.batch_size} and "
                f"training.gradient_accumulation_steps = {training.accumulation_steps} make "
                "micro-batches of one row, and algorithm.loss_type = 'kto' compares rows of the "
                "same one; make them larger, or set loss_type = 'apo_zero_unpaired'"
            )
