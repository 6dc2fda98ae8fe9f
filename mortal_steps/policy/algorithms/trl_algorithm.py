"""Algorithms that one of TRL's trainers computes; the modules in `stepping` drive it.

Nothing here imports torch or TRL before an algorithm is checked: configurations are read with it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from mortal_steps.config import RolloutConfig, RunConfig, TrainingConfig
from mortal_steps.policy.algorithms.base import Algorithm, Stepper

TrainerClass = type[Any]
"""A trainer of TRL's, or a class derived from one."""


class TrlAlgorithm(Algorithm):
    """An algorithm that a trainer of TRL's computes, one train step at a time; its options are
    those of `[training]`, under TRL's names."""

    trl_config: ClassVar[str]
    """The configuration of TRL's that its trainer takes, such as `GRPOConfig`."""

    def trainer_class(self) -> TrainerClass:
        """Return the trainer: TRL's own, or a class derived from it with, for example, another
        `_compute_loss`. It has the algorithm, with its settings, as `self.algorithm`."""
        raise NotImplementedError(f"{type(self).__name__} has no `trainer_class`")

    def options(self) -> dict[str, Any]:
        """Return the options of TRL's configuration that the algorithm's own settings decide."""
        return {}

    def check_built(self, training: TrainingConfig, rollout: RolloutConfig, built: Any) -> None:
        """Raise `ConfigError` for what does not fit the algorithm in these sections, or in TRL's
        configuration, which was `built` from them."""

    def check(self, config: RunConfig) -> tuple[str, ...]:
        # Imported where used: imports torch and TRL.
        from mortal_steps.policy.algorithms.stepping.dry_run import dry_run
        from mortal_steps.policy.algorithms.stepping.lora_targets import check_targets
        from mortal_steps.policy.algorithms.stepping.options import check_options

        idle = check_options(config, self)
        dry_run(config, self)
        targets = check_targets(config.training, config.model, engine=config.rollout.engine)
        return idle + targets

    def stepper(self, config: RunConfig, **options: Any) -> Stepper:
        # Imported where used: imports torch and TRL.
        from mortal_steps.policy.algorithms.stepping.stepper import TrlStepper

        return TrlStepper(self, config, **options)
