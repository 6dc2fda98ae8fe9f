"""`type = "atropos"`: GRPO on the scored groups of Atropos' environments.

Advantages are those of https://arxiv.org/abs/2402.03300, with the ratio clipped as in PPO
(https://arxiv.org/abs/1707.06347); a completion counts as the mean over its tokens, a micro-batch
as the mean over its completions.
"""

from typing import Annotated, Any, ClassVar

from pydantic import Field

from mortal_steps.config import RolloutConfig, TrainingConfig
from mortal_steps.config.field_metadata import STATE
from mortal_steps.errors import ConfigError
from mortal_steps.policy.algorithms.trl_algorithm import TrlAlgorithm
from mortal_steps.policy.algorithms.trl_hooks import TrainerClass, changed
from mortal_steps.policy.batches import Rows
from mortal_steps.policy.plan import TrainerPlan

OF_OTHER_LOSSES = (
    *("loss_type", "epsilon", "epsilon_high", "scale_rewards"),
    "importance_sampling_correction",
)
"""Keys of `[training]` about what this loss does in its own way."""
TRLS_OF_OTHER_LOSSES = (
    *("delta", "sapo_", "vespo_", "importance_sampling_", "vllm_importance_sampling_"),
    *("top_entropy_", "entropy_", "use_adaptive_entropy", "mask_truncated_completions"),
    *("off_policy_mask_", "use_bias_correction_kl", "multi_objective_", "router_aux_loss_coef"),
)
"""What options of TRL's begin with that its own losses read."""


class Atropos(TrlAlgorithm, extra="forbid"):
    """GRPO on groups of any size, which environments sampled and scored."""

    trl_config: ClassVar[str] = "GRPOConfig"
    trains_on = Rows
    pads_left: ClassVar[bool] = False
    type: Annotated[str, STATE] = "atropos"
    clip_eps: float = Field(0.2, gt=0)
    """Clipping range of the probability ratio."""

    def trainer_class(self) -> TrainerClass:
        """Return the trainer, which is derived from TRL's GRPOTrainer."""
        from mortal_steps.policy.algorithms.stepping.scored_groups import ScoredGroupsTrainer

        return ScoredGroupsTrainer

    def check(self, plan: TrainerPlan) -> tuple[str, ...]:
        training = plan.training
        trls = [name for name in training.trl if name.startswith(TRLS_OF_OTHER_LOSSES)]
        idle = [*changed(training, OF_OTHER_LOSSES), *(f"trl.{name}" for name in trls)]
        return super().check(plan) + tuple(
            f"training.{key} changes nothing: algorithm.type = 'atropos' has a loss of its own "
            "(algorithm.clip_eps is its clipping range), and advantages of the environments' scores"
            for key in idle
        )

    def check_built(self, training: TrainingConfig, rollout: RolloutConfig, built: Any) -> None:
        """Raise `ConfigError` for a penalty that this loss does not have."""
        if training.beta:
            raise ConfigError(
                f"training.beta = {training.beta}: the loss of algorithm.type = 'atropos' has no "
                "KL penalty; leave it out"
            )
