"""From a run's configuration to the part of its plan that each worker is given."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mortal_steps.data.sources import comes_from_gym
from mortal_steps.environments.plan import EnvironmentPlan, ProblemsPlan
from mortal_steps.places.plan import PlacePlan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.plan import ActorPlan, TrainerPlan
from mortal_steps.policy.starting_model.base_model import model_cache
from mortal_steps.rewards.plan import CodePlan, ScoringPlan
from mortal_steps.rewards.sources import check_files
from mortal_steps.rollout.episodes.base import ToolSettings
from mortal_steps.rollout.plan import SamplerPlan
from mortal_steps.scores import reward_weights
from mortal_steps.users_code.loading import names_code


def trainer_plan(config: RunConfig) -> TrainerPlan:
    """Return what the run's algorithm trains with."""
    return TrainerPlan(
        seed=config.seed,
        algorithm=config.algorithm,
        model=config.model,
        training=config.training,
        rollout=config.rollout,
        reward_weights=reward_weights(scoring) if (scoring := config.training_rewards) else {},
        here=config.compute.place.here,
        evaluation=config.evaluation if config.evaluates else None,
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


def environment_plan(config: RunConfig) -> EnvironmentPlan:
    """Return what processes with the run's environments are given."""
    local = config.compute.local.rollout
    return EnvironmentPlan(
        environment=config.environment,
        rewards=config.rewards,
        seed=config.seed,
        app=config.compute.modal.app,
        passed_on=config.seen_by_environments,
        modal=config.compute.away_from_rollouts,
        python=local.python if config.compute.place.shares_files else None,
        env=local.env,
    )


def problems_plan(config: RunConfig) -> ProblemsPlan:
    """Return what the run's problems are read from."""
    return ProblemsPlan(
        data=config.data,
        seed=config.seed,
        num_made=config.num_made_rows,
        environment=environment_plan(config),
    )


def code_plan(config: RunConfig) -> CodePlan:
    """Return the user's code that decides the run's numbers."""
    rollout, judging = config.rollout, config.eval_rewards
    names = (config.algorithm.type, rollout.engine or "", rollout.episodes, rollout.source)
    scoring = (*config.rewards.code, *judging.code, *config.environment.code)
    return CodePlan(
        scoring=tuple(dict.fromkeys(scoring)),
        training=tuple(dict.fromkeys(filter(names_code, names))),
        model_folders=tuple(dict.fromkeys((*config.rewards.folders, *judging.folders))),
        environment=config.environment,
        compute=config.compute,
        accept_changed=config.rewards.accept_changed,
    )


def scoring_plan(config: RunConfig) -> ScoringPlan:
    """Return what the run's reward workers work with."""
    training = config.training_rewards
    judges_apart = training is not None and config.evaluation.functions is not None
    return ScoringPlan(
        rewards=training or config.eval_rewards,
        eval_rewards=config.eval_rewards if judges_apart else None,
        compute=config.compute,
        gym_rows=comes_from_gym(config.data),
        template_options=config.training.template_options,
        updates_per_step=config.training.optimizer_steps_per_batch,
        code=code_plan(config),
    )


def sampler_plan(config: RunConfig) -> SamplerPlan:
    """Return what the run's rollout workers work with."""
    return SamplerPlan(
        model=config.sampled_model,
        rollout=config.with_room_for_adapters().rollout,
        seed=config.seed,
        template_options=config.training.template_options,
        environment=config.environment,
        rewards=config.rewards,
        eval_rewards=config.eval_rewards,
        tools=ToolSettings(
            passed_on=config.seen_by_environments,
            app=config.compute.modal.app,
            modal=config.compute.away_from_rollouts,
            updates_per_step=config.training.optimizer_steps_per_batch,
        ),
        check_code=partial(check_files, plan=code_plan(config), working_dir=Path()),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerPlans:
    """What the workers of each role work with."""

    actor: ActorPlan
    rollout: SamplerPlan
    num_rollout_workers: int
    reward: ScoringPlan


def worker_plans(config: RunConfig) -> WorkerPlans:
    """Return what the run's workers work with."""
    return WorkerPlans(
        actor=actor_plan(config),
        rollout=sampler_plan(config),
        num_rollout_workers=config.num_rollout_workers,
        reward=scoring_plan(config),
    )


def place_plan(config: RunConfig) -> PlacePlan:
    """Return what the run's place works with."""
    return PlacePlan(
        compute=config.compute,
        rollout=config.rollout,
        num_rollout_workers=config.num_rollout_workers,
        ranks=config.training.ranks,
        actor_containers=config.actor_containers,
        is_quantized=bool(config.model.quantization),
        environment=config.environment,
        algorithm=config.algorithm.type,
        scoring=code_plan(config).scoring,
        objects=config.users_objects,
    )
