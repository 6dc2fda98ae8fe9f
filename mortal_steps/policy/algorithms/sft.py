"""`type = "sft"`: supervised fine-tuning, by TRL's own SFTTrainer.

tests/integration/policy/test_rows_parity.py compares all of it, bit for bit, with stock
`SFTTrainer.train()`.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from mortal_steps.config import TrainingConfig
from mortal_steps.config.field_metadata import STATE
from mortal_steps.policy.algorithms.rows.algorithm import RowsAlgorithm
from mortal_steps.policy.algorithms.trl_hooks import TrainerClass


class SFT(RowsAlgorithm, extra="forbid"):
    """Supervised fine-tuning. Options of TRL's SFTConfig without a key of their own go into
    `[training.trl]`."""

    trl_config: ClassVar[str] = "SFTConfig"
    rows_in_words: ClassVar[str] = (
        "a column `text`, a column `messages`, or the columns `prompt` and `completion`"
    )
    columns: ClassVar[tuple[str, ...]] = ("prompt", "completion", "messages", "labels")
    type: Annotated[str, STATE] = "sft"
    loss_type: Literal["nll", "dft"] = "nll"
    """`nll`: the negative log-likelihood of each token; `dft`: the same, weighted by the token's
    probability (https://arxiv.org/abs/2508.05629)."""

    def trainer_class(self) -> TrainerClass:
        from trl import SFTTrainer

        trainer: TrainerClass = SFTTrainer
        return trainer

    def columns_of(self, training: TrainingConfig) -> Sequence[str]:
        return (*self.columns, training.trl.get("dataset_text_field", "text"))

    def options(self) -> dict[str, Any]:
        return {"loss_type": self.loss_type}
