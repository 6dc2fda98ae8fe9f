"""`type = "rloo"`: REINFORCE with a leave-one-out baseline, by TRL's own RLOOTrainer.

RLOO is https://arxiv.org/abs/2402.14740. tests/integration/policy/test_rloo_parity.py compares all
of it, bit for bit, with stock `RLOOTrainer.train()`.
"""

from typing import Annotated, Any, ClassVar

from pydantic import field_validator

from mortal_steps.config import RolloutConfig, TrainingConfig
from mortal_steps.config.field_metadata import STATE
from mortal_steps.errors import ConfigError
from mortal_steps.policy.algorithms.trl_algorithm import TrlAlgorithm
from mortal_steps.policy.algorithms.trl_hooks import changed

OF_GRPO = "leave it out, or set algorithm.type = 'grpo'"
LACKING = {
    "loss_type": "RLOO has one loss, its own",
    "scale_rewards": "RLOO takes the rewards of a group as they are (but see "
    "algorithm.normalize_advantages)",
    "importance_sampling_correction": "TRL's RLOO corrects for no difference between the "
    "sampler's and the trainer's log-probabilities",
}
"""Keys of `[training]` that mean nothing to RLOO."""


class RLOO(TrlAlgorithm, extra="forbid"):
    """RLOO (https://arxiv.org/abs/2402.14740); its other options are those of `[training]` that
    TRL's RLOOConfig has, under the names and with the defaults that they have there."""

    trl_config: ClassVar[str] = "RLOOConfig"
    type: Annotated[str, STATE] = "rloo"
    normalize_advantages: bool = False
    """Give the advantages of a batch the mean 0 and the standard deviation 1."""
    reward_clip_range: tuple[float, float] | None = None
    """Clip each completion's reward, the weighted sum, to [lowest, highest]."""

    @field_validator("reward_clip_range")
    @classmethod
    def _is_a_range(cls, ends: tuple[float, float] | None) -> tuple[float, float] | None:
        if ends is not None and ends[0] >= ends[1]:
            raise ValueError("the first number, the lowest reward, must be below the second")
        return ends

    def options(self) -> dict[str, Any]:
        """Return the options of RLOOConfig that GRPOConfig does not have."""
        return {
            "normalize_advantages": self.normalize_advantages,
            "reward_clip_range": self.reward_clip_range,
        }

    def check_built(self, training: TrainingConfig, rollout: RolloutConfig, built: Any) -> None:
        """Raise `ConfigError` for what RLOO lacks and, unless the user decides otherwise, for
        completions of older weights: RLOO takes whatever it trains on for samples of the present
        ones, and GRPO corrects for older ones."""
        for key, value in changed(training, LACKING).items():
            if value:
                raise ConfigError(f"training.{key} = {value!r}: {LACKING[key]}; {OF_GRPO}")
        if training.importance_sampling_correction is False:
            return
        fresh = {"staleness": 0, "sync_weights_every": 1}
        for key, value in fresh.items():
            chosen = getattr(rollout, key)
            if chosen != value:
                raise ConfigError(
                    f"rollout.{key} = {chosen}: completions are then sampled with older weights, "
                    f"and TRL's RLOO does not correct for that; set it to {value}, or train on "
                    "them as they are with training.importance_sampling_correction = false"
                )
