"""TRL's GRPOTrainer, taken one train step at a time with rollouts from outside.

GRPO is https://arxiv.org/abs/2402.03300; `mortal_steps.config.training.LossType` links the papers
of the losses. tests/integration/policy/test_trl_parity.py holds all of it to the bit against stock
`GRPOTrainer.train()`.
"""

from __future__ import annotations

from typing import Any

from trl import GRPOConfig

from mortal_steps.policy.algorithms.grpo.options import build_trl_config
from mortal_steps.policy.algorithms.grpo.trainer import (
    SteppedGRPOTrainer,
    let_trl_correct_importance,
    recorded_rollouts,
)
from mortal_steps.policy.algorithms.stepping.stepper import TrlStepper


class GRPOStepper(TrlStepper):
    """One GRPO run's trainer."""

    def _arguments(self, **options: Any) -> GRPOConfig:
        return build_trl_config(self._config, **options)

    def _build_trainer(self, **arguments: Any) -> SteppedGRPOTrainer:
        trainer = SteppedGRPOTrainer(rollout_func=recorded_rollouts, **arguments)
        if self._config.corrects_importance:
            let_trl_correct_importance(trainer)
        return trainer
