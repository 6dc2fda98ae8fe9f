"""`type = "reward"`: a reward model, by TRL's own RewardTrainer.

tests/integration/policy/test_rows_parity.py compares it, bit for bit, with stock
`RewardTrainer.train()`.
"""

from pathlib import Path
from typing import Annotated, Any, ClassVar

from mortal_steps.config.field_metadata import STATE
from mortal_steps.policy.algorithms.rows.algorithm import RowsAlgorithm
from mortal_steps.policy.algorithms.trl_hooks import SCORES


class RewardModel(RowsAlgorithm, extra="forbid"):
    """A model that scores a text, trained on pairs of which one is better. Options of TRL's
    RewardConfig without a key of their own go into `[training.trl]`."""

    trl_config: ClassVar[str] = "RewardConfig"
    task: ClassVar[str] = SCORES
    rows_in_words: ClassVar[str] = (
        "the columns `chosen` and `rejected`, with a `prompt` or beginning with the same one"
    )
    columns: ClassVar[tuple[str, ...]] = ("prompt", "chosen", "rejected", "margin")
    type: Annotated[str, STATE] = "reward"

    def small_model(self, folder: Path) -> Any:
        from transformers import AutoModelForSequenceClassification

        super().small_model(folder)
        return AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1)
