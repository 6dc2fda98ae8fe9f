"""`type = "grpo"`: GRPO and its relatives, by TRL's own GRPOTrainer.

options   from `[training]` to TRL's GRPOConfig
trainer   GRPOTrainer on recorded batches, with its importance-sampling correction
stepper   one train step at a time; how, is told in ../stepping
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from mortal_steps.config import RunConfig
from mortal_steps.config.marks import Affects
from mortal_steps.policy.algorithms.base import Algorithm, Stepper
from mortal_steps.policy.model_files.adapter_base import AdapterBase


class GRPO(Algorithm, extra="forbid"):
    """GRPO and its relatives; their options are those of `[training]`, under TRL's names."""

    type: Annotated[str, Affects.TRAINING | Affects.STATE] = "grpo"

    def check(self, config: RunConfig) -> tuple[str, ...]:
        """See `Algorithm.check`."""
        from mortal_steps.policy.algorithms.grpo.options import check_trl_options
        from mortal_steps.policy.algorithms.grpo.stepper import GRPOStepper
        from mortal_steps.policy.algorithms.stepping.rehearsal import rehearse

        idle = check_trl_options(config)
        rehearse(config, GRPOStepper)
        return idle

    def stepper(
        self,
        config: RunConfig,
        *,
        model_path: str,
        num_steps: int,
        output_dir: Path,
        autocast: bool | None = None,
        base: AdapterBase | None = None,
    ) -> Stepper:
        """See `Algorithm.stepper`."""
        from mortal_steps.policy.algorithms.grpo.stepper import GRPOStepper

        return GRPOStepper(
            config,
            model_path=model_path,
            num_steps=num_steps,
            output_dir=output_dir,
            autocast=autocast,
            base=base,
        )
