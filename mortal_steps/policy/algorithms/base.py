"""What the actor asks of an algorithm."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from pydantic import ValidationError

from mortal_steps.config import AlgorithmConfig, ModelConfig
from mortal_steps.config.plain_words import complaint
from mortal_steps.errors import ConfigError
from mortal_steps.models.hub import is_hub_model
from mortal_steps.policy.algorithms.table import ALGORITHMS
from mortal_steps.policy.batches import Batch, ScoredRollouts
from mortal_steps.policy.plan import TrainerPlan
from mortal_steps.types import TrainingPlace


@dataclass(frozen=True, kw_only=True, slots=True)
class AdapterBase:
    """The model that a LoRA adapter belongs to, as the adapter's files name it."""

    name: str
    """Its name on the hub, or the absolute path of a local folder."""
    revision: str | None = None
    """Commit, branch or tag of a hub model."""

    @classmethod
    def at(cls, model: ModelConfig, model_path: str) -> Self:
        """Return the base at `model_path`; a model from the hub goes by its name there."""
        if is_hub_model(model):
            return cls(name=model.name_or_path, revision=model.revision)
        return cls(name=os.path.abspath(model_path))


class Snapshot(Protocol):
    """A state that can be saved, and that nothing changes any more."""

    def save_state(self, folder: Path) -> None:
        """Write all that `Stepper.begin` needs to go on bit for bit."""
        ...

    def digests(self) -> dict[str, str]: ...


class Stepper(Protocol):
    """A trainer that takes one train step at a time. One's own derives from this class, which
    answers `why_no_snapshot`, `snapshot` and `warnings`.

    What it holds after `begin` and some train steps is a pure function of the configuration, the
    batches and their seeds. A run that is killed is replayed, and must reach the same bits.
    """

    tokenizer: Any
    """transformers' tokenizer of the model."""

    def begin(
        self,
        resume_from: Path | None = None,
        *,
        renewed_at: int | None = None,
    ) -> None:
        """Prepare to train, from the start or from a folder written by `save_state`.

        With `renewed_at`, a number of train steps, another configuration wrote the folder: what was
        learned is taken from it, hyperparameters from this configuration.
        """
        ...

    def train_step(self, batch: Any, *, seed: int) -> dict[str, float]:
        """Train on a batch of the algorithm's kind, a `RolloutBatch` or a `RowBatch`; returns
        finite metrics by name."""
        ...

    def score(self, token_ids: Sequence[int]) -> list[float]:
        """Log-probability (nats) of each token but the first, at temperature 1, no dropout."""
        ...

    def save_state(self, folder: Path) -> None:
        """Write all that `begin` needs to go on bit for bit; only between train steps."""
        ...

    def why_no_snapshot(self) -> str | None:
        """Return why `snapshot` cannot be called now, so that training waits for a checkpoint; None
        if it can."""
        return f"{type(self).__name__} makes no snapshots"

    def snapshot(self) -> Snapshot:
        """Copy the state as it is, to be saved while training goes on."""
        raise NotImplementedError(self.why_no_snapshot())

    def export_weights(self, folder: Path) -> None:
        """Write the policy for engines to sample with: a plain `from_pretrained` folder or, where
        `training.publishes_adapter`, a LoRA adapter as PEFT writes it."""
        ...

    def save_final(self, folder: Path) -> None:
        """Write the trained model with its tokenizer: the adapter alone where there is one."""
        ...

    def save_merged(self, folder: Path) -> None:
        """Write the trained model with its tokenizer, an adapter merged into its base."""
        ...

    def published_digests(self) -> dict[str, str]:
        """Digest of each tensor that `export_weights` writes, by name."""
        ...

    def weights_digest(self) -> str: ...

    def digests(self) -> dict[str, str]:
        """Digest of each part of the state that `save_state` writes and `begin` restores."""
        ...

    def random_digest(self) -> str:
        """Digest of the random streams that training draws from, as they are now."""
        ...

    def place(self) -> TrainingPlace: ...

    def warnings(self) -> tuple[str, ...]:
        """Return what a user should know before the first step."""
        return ()

    @property
    def optimizer_steps(self) -> int:
        """Optimizer updates since the start of the run."""
        ...

    @property
    def num_parameters(self) -> int:
        """Parameters of the model, frozen ones included and tied ones counted once."""
        ...

    @property
    def num_trained(self) -> int:
        """Parameters that are trained."""
        ...

    @property
    def autocast(self) -> bool:
        """Whether matrices are multiplied in bfloat16, whatever the type of the weights."""
        ...


class Algorithm(AlgorithmConfig):
    """An algorithm: `[algorithm]` of the configuration with its settings, checked."""

    trains_on: ClassVar[type[Batch]] = ScoredRollouts
    """What a train step is given, which the batch source has to supply."""

    def check(self, plan: TrainerPlan) -> tuple[str, ...]:
        """Raise `ConfigError` for what the algorithm cannot train; return a sentence for each
        option that has no effect.

        That an adapter fits the model's layers is part of it (`lora_targets.check_targets`). Called
        before any worker is started, in a process of its own.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `check`")

    def stepper(
        self,
        plan: TrainerPlan,
        *,
        model_path: str,
        num_steps: int,
        output_dir: Path,
        autocast: bool | None = None,
        base: AdapterBase | None = None,
    ) -> Stepper:
        """Return the trainer of a run of `num_steps` train steps; `begin` is called next.

        `autocast` decides on bfloat16 autocast if the configuration does not; by default the device
        decides. `base` is the model that an adapter belongs to.
        """
        raise NotImplementedError(f"{type(self).__name__} has no `stepper`")


def algorithm_of(chosen: AlgorithmConfig) -> Algorithm:
    """Return the algorithm that `[algorithm]` names, importing a user's class. Raises `ConfigError`
    for one that cannot be imported, is no `Algorithm`, or does not take its settings."""
    if isinstance(chosen, Algorithm):
        return chosen
    kind = ALGORITHMS.load(chosen.type)
    if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
        raise ConfigError(
            f"algorithm.type = {chosen.type!r} is no subclass of Algorithm, which stands in "
            "mortal_steps.policy.algorithms; derive it from that"
        )
    try:
        return kind.model_validate(chosen.model_dump())
    except ValidationError as error:
        raise ConfigError(complaint(error.errors()[0], "algorithm")) from None
