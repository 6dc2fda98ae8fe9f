"""`type = "sft"`: supervised fine-tuning, by TRL's own SFTTrainer.

tests/integration/policy/test_rows_parity.py compares all of it, bit for bit, with stock
`SFTTrainer.train()`.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from mortal_steps.config import TrainingConfig
from mortal_steps.config.field_metadata import STATE
from mortal_steps.policy.algorithms.rows.algorithm import RowsAlgorithm


class SFT(RowsAlgorithm, extra="forbid"):
    """Supervised fine-tuning. Options of TRL's SFTConfig without a key of their own go into
    `[training.trl]`."""

    trl_config: ClassVar[str] = "SFTConfig"
    rows_in_words: ClassVar[str] = (
        "a column `text`, a column `messages`, or the columns `prompt` and `completion`"
    )
    type: Annotated[str, STATE] = "sft"
    loss_type: Literal["nll", "dft"] = "nll"
    """`nll`: the negative log-likelihood of each token; `dft`: the same, weighted by the token's
    probability (https://arxiv.org/abs/2508.05629)."""

    def columns_of(self, training: TrainingConfig, first: Mapping[str, Any]) -> Sequence[str]:
        """See `RowsAlgorithm.columns_of`: those of the one form that TRL reads, although the rows
        may have several."""
        text = str(training.trl.get("dataset_text_field", "text"))
        if isinstance(first.get("prompt"), str):
            form = ["completion", text]  # either may be given the end token
        elif first.get("prompt") is not None:
            form = ["completion"]
        elif _are_from_and_value(first.get("conversations")):
            form = ["conversations"]
        else:
            form = ["messages" if isinstance(first.get("messages"), list) else text]
        return ("prompt", *form, "labels")

    def options(self) -> dict[str, Any]:
        return {"loss_type": self.loss_type}


def _are_from_and_value(conversations: Any) -> bool:
    """Return whether TRL makes `messages` of a column `conversations`."""
    first = conversations[0] if isinstance(conversations, list) and conversations else None
    return isinstance(first, dict) and {"from", "value"} <= first.keys()
