"""`type = "dpo"`: direct preference optimization, by TRL's own DPOTrainer.

DPO is https://arxiv.org/abs/2305.18290. tests/integration/policy/test_rows_parity.py compares it,
bit for bit, with stock `DPOTrainer.train()`.
"""

from typing import Annotated, Any, ClassVar, Literal

from mortal_steps.config.field_metadata import STATE
from mortal_steps.policy.algorithms.rows.algorithm import RowsAlgorithm

DpoLoss = Literal[
    "sigmoid",
    "hinge",
    "ipo",
    "exo_pair",
    "nca_pair",
    "robust",
    "bco_pair",
    "sppo_hard",
    "aot",
    "aot_unpaired",
    "apo_zero",
    "apo_down",
    "discopop",
    "sft",
    "sigmoid_norm",
]


class DPO(RowsAlgorithm, extra="forbid"):
    """Direct preference optimization: of two answers, the better one becomes more likely. Options
    of TRL's DPOConfig without a key of their own go into `[training.trl]`."""

    trl_config: ClassVar[str] = "DPOConfig"
    rows_in_words: ClassVar[str] = (
        "the columns `chosen` and `rejected`, with a `prompt` or beginning with the same one"
    )
    columns: ClassVar[tuple[str, ...]] = ("prompt", "chosen", "rejected")
    type: Annotated[str, STATE] = "dpo"
    loss_type: DpoLoss | tuple[DpoLoss, ...] = "sigmoid"
    """One of TRL's losses, or several whose weighted sum is the loss."""
    beta: float = 0.1
    """How much the policy is held to the reference model: more keeps it closer."""

    def options(self) -> dict[str, Any]:
        losses = [self.loss_type] if isinstance(self.loss_type, str) else list(self.loss_type)
        return {"loss_type": losses, "beta": self.beta}
