"""`type = "rloo"`: REINFORCE with a leave-one-out baseline, by TRL's own RLOOTrainer.

options   from `[training]` to TRL's RLOOConfig, and keys that mean nothing to RLOO
trainer   RLOOTrainer on recorded batches
stepper   one train step at a time; how, is told in ../stepping
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import field_validator

from mortal_steps.config import RunConfig
from mortal_steps.config.marks import Affects, Trl
from mortal_steps.policy.algorithms.base import Algorithm, Stepper


class RLOO(Algorithm, extra="forbid"):
    """RLOO (https://arxiv.org/abs/2402.14740); its other options are those of `[training]` that
    TRL's RLOOConfig has, under the names and with the defaults that they have there."""

    type: Annotated[str, Affects.TRAINING | Affects.STATE] = "rloo"
    normalize_advantages: Annotated[bool, Affects.TRAINING, Trl("normalize_advantages")] = False
    """Give the advantages of a batch the mean 0 and the standard deviation 1."""
    reward_clip_range: Annotated[
        tuple[float, float] | None, Affects.TRAINING, Trl("reward_clip_range")
    ] = None
    """Clip each completion's reward, the weighted sum, to [lowest, highest]."""

    @field_validator("reward_clip_range")
    @classmethod
    def _is_a_range(cls, ends: tuple[float, float] | None) -> tuple[float, float] | None:
        if ends is not None and ends[0] >= ends[1]:
            raise ValueError("the first number, the lowest reward, must be below the second")
        return ends

    def check(self, config: RunConfig) -> tuple[str, ...]:
        """See `Algorithm.check`."""
        from mortal_steps.policy.algorithms.rloo.options import check_trl_options
        from mortal_steps.policy.algorithms.rloo.stepper import RLOOStepper
        from mortal_steps.policy.algorithms.stepping.rehearsal import rehearse

        config = self._with_own_settings(config)
        idle = check_trl_options(config)
        rehearse(config, RLOOStepper)
        return idle

    def stepper(self, config: RunConfig, **options: Any) -> Stepper:
        """See `Algorithm.stepper`."""
        from mortal_steps.policy.algorithms.rloo.stepper import RLOOStepper

        return RLOOStepper(self._with_own_settings(config), **options)

    def _with_own_settings(self, config: RunConfig) -> RunConfig:
        # Where a configuration is read, a class that a user derives from this one is not known; nor
        # are the marks of fields that it gives another default.
        settings = {name: getattr(self, name) for name in RLOO.model_fields}
        return config.model_copy(update={"algorithm": RLOO.model_validate(settings)})
