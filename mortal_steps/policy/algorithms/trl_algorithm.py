"""Algorithms that one of TRL's trainers computes.

Nothing here imports torch or TRL before an algorithm is checked: configurations are read with it.
"""

from typing import Any

from mortal_steps.policy.algorithms.base import Stepper
from mortal_steps.policy.algorithms.trl_hooks import TrlHooks
from mortal_steps.policy.plan import TrainerPlan


class TrlAlgorithm(TrlHooks):
    """An algorithm that a trainer of TRL's computes, one train step at a time."""

    def check(self, plan: TrainerPlan) -> tuple[str, ...]:
        # Imported where used: imports torch and TRL.
        from mortal_steps.policy.algorithms.stepping.dry_run import dry_run
        from mortal_steps.policy.algorithms.stepping.lora_targets import check_targets
        from mortal_steps.policy.algorithms.stepping.options import check_options
        from mortal_steps.policy.algorithms.stepping.trainers import check_trainer

        check_trainer(self)
        idle = check_options(plan, self)
        dry_run(plan, self)
        targets = check_targets(plan.training, plan.model, engine=plan.rollout.engine)
        return idle + targets

    def stepper(self, plan: TrainerPlan, **options: Any) -> Stepper:
        # Imported where used: imports torch and TRL.
        from mortal_steps.policy.algorithms.stepping.stepper import TrlStepper

        return TrlStepper(self, plan, **options)
