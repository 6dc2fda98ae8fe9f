"""What an algorithm of TRL's says of itself; the modules in `stepping` drive its trainer by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from mortal_steps.config import RolloutConfig, TrainingConfig
from mortal_steps.policy.algorithms.base import Algorithm
from mortal_steps.types import Rollout

TrainerClass = type[Any]
"""A trainer of TRL's, or a class derived from one."""
SCORES = "SEQ_CLS"
"""PEFT's name for what a model does that gives a text a score."""


def changed(training: TrainingConfig, keys: Iterable[str]) -> dict[str, Any]:
    """Return those of these keys of `[training]` that have another value than their default: a
    run's own config.toml holds every key."""
    values = {key: getattr(training, key) for key in keys}
    fields = type(training).model_fields
    return {key: value for key, value in values.items() if value != fields[key].default}


class TrlHooks(Algorithm):
    """An algorithm whose options are those of `[training]`, under TRL's names."""

    trl_config: ClassVar[str]
    """The configuration of TRL's that its trainer takes, such as `GRPOConfig`."""

    task: ClassVar[str] = "CAUSAL_LM"
    """PEFT's name for what the trained model does."""

    pads_left: ClassVar[bool] = True
    """Whether what is padded of a batch is padded before the text, as TRL pads prompts."""

    def trainer_class(self) -> TrainerClass:
        """Return the trainer: TRL's own that takes `trl_config`, or a class derived from it with,
        for example, another `_compute_loss`. It has the algorithm, with its settings, as
        `self.algorithm`."""
        from mortal_steps.policy.algorithms.stepping.trls import trainer_of  # imports TRL

        return trainer_of(self.trl_config)

    def options(self) -> dict[str, Any]:
        """Return the options of TRL's configuration that the algorithm's own settings decide."""
        return {}

    def options_of_run(self, training: TrainingConfig) -> dict[str, Any]:
        """Return the options of TRL's configuration that follow from `[training]` in another way
        than for algorithms that learn from scored completions."""
        return {}

    def arguments(self) -> Mapping[str, Any]:
        """Return what its trainer takes beside what every one of TRL's does."""
        return {}

    def of_small_models(self, folder: Path) -> TrlHooks:
        """Return the same for trying it with the model of next to no size that is in a folder."""
        return self

    def made_up(self, rollout: Rollout) -> Rollout:
        """Return a made-up rollout, on which options are tried, with all that is learned from."""
        return rollout

    def rows_of(self, batch: Any) -> list[dict[str, Any]]:
        """Return what the trainer is given of a batch, if the algorithm trains on something else
        than scored rollouts (`trains_on`): by default the rows of a `RowBatch`."""
        return [{**row.columns, "prompt": row.prompt} for row in batch.rows]

    def check_built(self, training: TrainingConfig, rollout: RolloutConfig, built: Any) -> None:
        """Raise `ConfigError` for what does not fit the algorithm in these sections, or in TRL's
        configuration, which was `built` from them."""
