"""From a run's configuration to the plan that its parts work with."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from mortal_steps.config import (
    DataConfig,
    ModelConfig,
    RewardsConfig,
    RolloutConfig,
    TrainingConfig,
)
from mortal_steps.config.algorithm import TEACHER
from mortal_steps.config.eval_sets import Harness
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
from mortal_steps.types import SamplingParams
from mortal_steps.users_code.loading import names_code


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerPlans:
    """What the workers of each role work with."""

    actor: ActorPlan
    rollout: SamplerPlan
    num_rollout_workers: int
    reward: ScoringPlan
    scores: bool
    """Whether the completions of train steps are scored, or taught."""
    samples_held_out: bool
    """Whether held-out problems are sampled, as is not so where rows are judged by their loss."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingPlan:
    """How problems are sampled, as train steps and as evaluations do it."""

    training: SamplingParams
    evaluation: SamplingParams
    num_evaluated: int
    """Completions of each problem in an evaluation."""
    num_shards: int
    problems_per_shard: int
    """At most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IdentityPlan:
    """What a run is told from others by, of which data, models and code are named alone."""

    settings: Mapping[str, Any]
    """The keys that decide the run's numbers, where they differ from the defaults."""
    data: DataConfig
    model: ModelConfig
    rewards: Mapping[str, RewardsConfig]
    """What scores, by the key that names it."""
    teachers: Mapping[str, ModelConfig]
    """Models that teach, by the key that names them."""
    harnesses: Mapping[str, Harness]
    """By the name of the set that each scores."""


class Plan:
    """What the parts of a run work with, made from its configuration once. Each part is given what
    it uses, and nothing else."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config

    @cached_property
    def trainer(self) -> TrainerPlan:
        """What the run's algorithm trains with."""
        config = self._config
        return TrainerPlan(
            seed=config.seed,
            algorithm=config.algorithm,
            model=config.model,
            training=config.training,
            rollout=config.rollout,
            reward_weights=reward_weights(asked) if (asked := config.rewards_and_teachers) else {},
            here=config.compute.place.here,
            evaluation=config.evaluation if config.evaluates else None,
        )

    @cached_property
    def actor(self) -> ActorPlan:
        """What the run's actor works with."""
        config = self._config
        return ActorPlan(
            trainer=self.trainer,
            environment=config.environment,
            checkpoints=config.checkpoints,
            cache_dir=model_cache(Path(config.runs_dir)),
            threads=config.compute.local.actor.threads,
        )

    @cached_property
    def environment(self) -> EnvironmentPlan:
        """What processes with the run's environments are given."""
        config, local = self._config, self._config.compute.local.rollout
        return EnvironmentPlan(
            environment=config.environment,
            rewards=config.rewards,
            seed=config.seed,
            app=config.compute.modal.app,
            passed_on=self._seen_by_environments,
            modal=config.compute.away_from_rollouts,
            python=local.python if config.compute.place.shares_files else None,
            env=local.env,
        )

    @cached_property
    def problems(self) -> ProblemsPlan:
        """What the run's problems are read from."""
        config = self._config
        return ProblemsPlan(
            data=config.data,
            seed=config.seed,
            num_made=config.num_made_rows,
            are_learned=config.algorithm.judges_by_loss,
            environment=self.environment,
        )

    @cached_property
    def sampling(self) -> SamplingPlan:
        """How the run's problems are sampled."""
        config = self._config
        return SamplingPlan(
            training=config.sampling,
            evaluation=config.eval_sampling,
            num_evaluated=config.evaluation.num_generations,
            num_shards=config.num_shards,
            problems_per_shard=config.problems_per_shard,
        )

    @cached_property
    def identity(self) -> IdentityPlan:
        """What the run is told from others by."""
        config, algorithm = self._config, self._config.algorithm
        judging = {} if config.evaluation.functions is None else {"functions": config.eval_rewards}
        judging |= {f"sets.{name}": each for name, each in config.set_rewards.items()}
        rewards = {f"evaluation.{key}": each for key, each in judging.items()}
        terms = algorithm.teacher_terms(config.rollout.temperature)
        teachers = {f"algorithm.teachers: {term.name}": term.source for term in terms}
        teachers = {TEACHER: algorithm.teacher_model, **teachers}
        return IdentityPlan(
            settings=config.identity(defaults=False),
            data=config.data,
            model=config.model,
            rewards={"rewards": config.rewards, **rewards},
            teachers={called: model for called, model in teachers.items() if model is not None},
            harnesses=config.evaluation.harnesses,
        )

    @cached_property
    def code(self) -> CodePlan:
        """The user's code that decides the run's numbers."""
        config = self._config
        rollout, judging = config.rollout, config.eval_rewards
        names = [config.algorithm.type, rollout.engine or "", rollout.episodes, rollout.source]
        names.append(config.selection.type)
        scoring = [*config.rewards.code, *judging.code, *config.environment.code]
        asked = config.rewards_and_teachers or config.rewards
        folders = [*asked.folders, *judging.folders]
        for each in config.set_rewards.values():
            scoring += each.code
            folders += each.folders
        harnesses = config.evaluation.harnesses.values()
        scoring += [name for each in harnesses for name in each.code]
        return CodePlan(
            scoring=tuple(dict.fromkeys(scoring)),
            training=tuple(dict.fromkeys(filter(names_code, names))),
            model_folders=tuple(dict.fromkeys(folders)),
            files=tuple(dict.fromkeys(str(file) for each in harnesses for file in each.read_files)),
            environment=config.environment,
            compute=config.compute,
            accept_changed=config.rewards.accept_changed,
        )

    @cached_property
    def scoring(self) -> ScoringPlan:
        """What the run's reward workers work with."""
        config = self._config
        training = config.rewards_and_teachers
        judges_apart = training is not None and config.evaluation.functions is not None
        as_usual = config.samples_held_out and config.scores_held_out_as_usual
        if training is not config.training_rewards:  # teachers judge nothing
            judges_apart = as_usual
        return ScoringPlan(
            rewards=training or config.eval_rewards,
            eval_rewards=config.eval_rewards if judges_apart else None,
            set_rewards=config.set_rewards,
            scores_sets_alone=training is None and not as_usual,
            compute=config.compute,
            gym_rows=comes_from_gym(config.data),
            template_options=config.training.template_options,
            updates_per_step=config.training.optimizer_steps_per_batch,
            code=self.code,
        )

    @cached_property
    def sampler(self) -> SamplerPlan:
        """What the run's rollout workers work with."""
        config = self._config
        return SamplerPlan(
            model=config.sampled_model,
            rollout=_with_room_for_adapters(config.rollout, config.training),
            seed=config.seed,
            template_options=config.training.template_options,
            environment=config.environment,
            rewards=config.rewards,
            eval_rewards=config.eval_rewards,
            set_rewards=config.set_rewards,
            harnesses=config.evaluation.harnesses,
            tools=ToolSettings(
                passed_on=self._seen_by_environments,
                app=config.compute.modal.app,
                modal=config.compute.away_from_rollouts,
                updates_per_step=config.training.optimizer_steps_per_batch,
            ),
            check_code=partial(check_files, plan=self.code, working_dir=Path()),
        )

    @cached_property
    def workers(self) -> WorkerPlans:
        """What the run's workers work with."""
        return WorkerPlans(
            actor=self.actor,
            rollout=self.sampler,
            num_rollout_workers=self._config.num_rollout_workers,
            reward=self.scoring,
            scores=self._config.rewards_and_teachers is not None,
            samples_held_out=self._config.samples_held_out,
        )

    @cached_property
    def place(self) -> PlacePlan:
        """What the run's place works with."""
        config = self._config
        return PlacePlan(
            compute=config.compute,
            rollout=config.rollout,
            num_rollout_workers=config.num_rollout_workers,
            ranks=config.training.ranks,
            actor_containers=config.compute.actor_containers(config.training.ranks),
            is_quantized=bool(config.model.quantization),
            environment=config.environment,
            algorithm=config.algorithm.type,
            selection=config.selection.type,
            scoring=self.code.scoring,
            objects=self._users_objects,
        )

    @property
    def _seen_by_environments(self) -> tuple[str, ...]:
        """Variables that environments see although they may hold credentials."""
        config = self._config
        return tuple(sorted({*config.compute.local.rollout.env, *config.rewards.credentials}))

    @property
    def _users_objects(self) -> tuple[str, ...]:
        """Files of the user's pickled objects that score or answer calls."""
        config = self._config
        scoring = (config.rewards, config.eval_rewards, *config.set_rewards.values())
        files = [file for each in scoring for term in each.all_terms for file in term.files]
        return tuple(dict.fromkeys((*files, *config.environment.files)))


def _with_room_for_adapters(rollout: RolloutConfig, training: TrainingConfig) -> RolloutConfig:
    """Return the same with the engine options that a LoRA adapter beside its base asks for."""
    adapters = rollout.engine_kind.adapters
    if adapters is None or not training.publishes_adapter:
        return rollout
    options = adapters.options_for(training.lora.r) | rollout.engine_options
    return rollout.model_copy(update={"engine_options": options})
