"""From a run's configuration to the part of its plan that each worker is given."""

from pathlib import Path

from mortal_steps.config import RunConfig
from mortal_steps.policy.plan import ActorPlan, TrainerPlan
from mortal_steps.policy.starting_model.base_model import model_cache
from mortal_steps.scores import reward_weights


def trainer_plan(config: RunConfig) -> TrainerPlan:
    """Return what the run's algorithm trains with."""
    return TrainerPlan(
        seed=config.seed,
        algorithm=config.algorithm,
        model=config.model,
        training=config.training,
        rollout=config.rollout,
        reward_weights=reward_weights(config.rewards),
        here=config.compute.place.here,
    )


def actor_plan(config: RunConfig) -> ActorPlan:
    """Return what the run's actor works with."""
    return ActorPlan(
        trainer=trainer_plan(config),
        environment=config.environment,
        checkpoints=config.checkpoints,
        cache_dir=model_cache(Path(config.runs_dir)),
        threads=config.compute.local.actor.threads,
    )
