"""TRL's RLOOTrainer, taken one train step at a time with rollouts from outside.

RLOO is https://arxiv.org/abs/2402.14740. tests/integration/policy/test_rloo_parity.py holds all of
it to the bit against stock `RLOOTrainer.train()`.
"""

from __future__ import annotations

from typing import Any

from trl import RLOOConfig

from mortal_steps.errors import ConfigError
from mortal_steps.policy.algorithms.rloo.options import build_trl_config
from mortal_steps.policy.algorithms.rloo.trainer import SteppedRLOOTrainer
from mortal_steps.policy.algorithms.stepping.stepper import TrlStepper
from mortal_steps.types import RolloutBatch


class RLOOStepper(TrlStepper):
    """One RLOO run's trainer."""

    def train_step(self, batch: RolloutBatch, *, seed: int) -> dict[str, float]:
        """See `TrlStepper.train_step`. Raises `ConfigError` for a batch with tokens that an
        environment wrote: RLOOTrainer would train on them."""
        for group in batch.groups:
            for completion in (rollout.completion for rollout in group.rollouts):
                if completion.num_sampled < len(completion.token_ids):
                    raise ConfigError(
                        f"algorithm.type = 'rloo': in step {batch.step + 1}, completions of "
                        f"{group.problem.id} hold tokens of an environment, between the turns of "
                        "the model, and TRL's RLOO cannot leave them out of the loss; train on "
                        "completions of one turn, or set algorithm.type = 'grpo'"
                    )
        return super().train_step(batch, seed=seed)

    def _arguments(self, **options: Any) -> RLOOConfig:
        return build_trl_config(self._config, **options)

    def _build_trainer(self, **arguments: Any) -> SteppedRLOOTrainer:
        return SteppedRLOOTrainer(**arguments)
