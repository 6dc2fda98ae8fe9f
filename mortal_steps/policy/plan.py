"""The parts of a run's plan that the actor and its algorithm are given."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.config import (
    AlgorithmConfig,
    CheckpointsConfig,
    EnvironmentConfig,
    EvaluationConfig,
    ModelConfig,
    RolloutConfig,
    TrainingConfig,
)
from mortal_steps.config.rollout import SamplingType
from mortal_steps.orchestration.batch_sources.table import GENERATE


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerPlan:
    """What an algorithm trains with: all of the configuration that a `Stepper` is made from."""

    seed: int
    algorithm: AlgorithmConfig
    model: ModelConfig
    training: TrainingConfig
    rollout: RolloutConfig
    """How the completions that it trains on are sampled, and with which version of its weights."""
    reward_weights: Mapping[str, float]
    """Weight of each reward by its name, in the order of the rewards."""
    here: bool
    """Whether it trains on the machine that checks the run."""
    evaluation: EvaluationConfig | None = None
    """When the held-out problems are scored."""

    @property
    def published_in(self) -> SamplingType | None:
        """Type that the weights are published in, where it is not the type they are trained in."""
        return self.rollout.published_in(self.model.dtype)

    @property
    def corrects_importance(self) -> bool:
        """Whether TRL's truncated importance sampling is on
        (https://fengyao.notion.site/off-policy-rl)."""
        rollout, chosen = self.rollout, self.training.importance_sampling_correction
        stale = rollout.sync_weights_every > 1 or rollout.staleness > 0
        differs = rollout.engine_kind.corrects_importance or rollout.source != GENERATE
        differs = differs or self.published_in is not None
        return chosen if chosen is not None else stale or differs


@dataclass(frozen=True, kw_only=True, slots=True)
class ActorPlan:
    """What the actor of a run works with."""

    trainer: TrainerPlan
    environment: EnvironmentConfig
    """What the completions talk to; with tools, it decides how chats are rendered."""
    checkpoints: CheckpointsConfig
    cache_dir: Path
    """Folder of the starting models that runs have made."""
    threads: int | None
    """OMP_NUM_THREADS of the actor, which decides the bits of a warm start; None: the default."""
