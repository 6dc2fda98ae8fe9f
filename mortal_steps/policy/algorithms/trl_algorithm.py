"""Algorithms that one of TRL's trainers computes, and the hooks by which a user changes one.

Nothing here imports torch or TRL before an algorithm is checked: configurations are read with it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from mortal_steps.config import RunConfig
from mortal_steps.policy.algorithms.base import Algorithm, Stepper
from mortal_steps.policy.model_files.adapter_base import AdapterBase

TrainerClass = type[Any]
"""A trainer of TRL's, or a class derived from one."""


class TrlAlgorithm(Algorithm):
    """An algorithm of TRL's; its options are those of `[training]`, under TRL's names."""

    trl_config: ClassVar[str]
    """The configuration of TRL's that its trainer takes, such as `GRPOConfig`."""

    def trainer_class(self) -> TrainerClass:
        """Return the trainer: TRL's own, or a class derived from it.

        A loss of one's own is such a class with another `_compute_loss`. The trainer has the
        algorithm, with its settings, as `self.algorithm`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `trainer_class`")

    def options(self) -> dict[str, Any]:
        """Return the options of TRL's configuration that the algorithm's own settings decide."""
        return {}

    def check_built(self, config: RunConfig, built: Any) -> None:
        """Raise `ConfigError` for what does not fit the algorithm in a configuration, or in the one
        of TRL's that was built from it."""

    def check(self, config: RunConfig) -> tuple[str, ...]:
        """See `Algorithm.check`."""
        # Imported where used: imports torch and TRL.
        from mortal_steps.policy.algorithms.stepping.dry_run import dry_run
        from mortal_steps.policy.algorithms.stepping.options import check_options

        idle = check_options(config, self)
        dry_run(config, self)
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
        # Imported where used: imports torch and TRL.
        from mortal_steps.policy.algorithms.stepping.stepper import TrlStepper

        return TrlStepper(
            self,
            config,
            model_path=model_path,
            num_steps=num_steps,
            output_dir=output_dir,
            autocast=autocast,
            base=base,
        )
