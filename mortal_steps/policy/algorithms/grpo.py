"""`type = "grpo"`: GRPO and its relatives, by TRL's own GRPOTrainer.

GRPO is https://arxiv.org/abs/2402.03300; `mortal_steps.config.training.LossType` links the papers
of the losses. tests/integration/policy/test_trl_parity.py compares all of it, bit for bit, with
stock `GRPOTrainer.train()`.
"""

from typing import Annotated, Any, ClassVar

from mortal_steps.config import RolloutConfig, TrainingConfig
from mortal_steps.config.field_metadata import STATE
from mortal_steps.errors import ConfigError
from mortal_steps.policy.algorithms.trl_algorithm import TrlAlgorithm


class GRPO(TrlAlgorithm, extra="forbid"):
    """GRPO and its relatives; their options are those of `[training]`, under TRL's names."""

    trl_config: ClassVar[str] = "GRPOConfig"
    type: Annotated[str, STATE] = "grpo"

    def check_built(self, training: TrainingConfig, rollout: RolloutConfig, built: Any) -> None:
        """Raise `ConfigError` for a correction of importance that the vespo loss does not take."""
        # TRL's own check looks at `use_vllm`, which is off in the GRPOConfig (see trainers.py).
        mode = built.vllm_importance_sampling_mode
        corrects = built.vllm_importance_sampling_correction
        if built.loss_type == "vespo" and corrects and not mode.startswith("token_"):
            raise ConfigError(
                f"training.trl.vllm_importance_sampling_mode = {mode!r}: the vespo loss corrects "
                "importance per token; set it to 'token_truncate' or 'token_mask'"
            )
