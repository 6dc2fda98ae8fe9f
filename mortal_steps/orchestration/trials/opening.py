"""From a configuration to the workers of what is no run: checks, trials, judgements of models."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.compute.base import Role, WorkerSpec
from mortal_steps.compute.interpreters import check_interpreters
from mortal_steps.compute.local import call_once
from mortal_steps.compute.roles import worker_specs
from mortal_steps.config import EvaluationConfig, RewardsConfig
from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.checking.checks import check_engine, check_model, check_rows
from mortal_steps.orchestration.checking.forecast import ForecastPlan
from mortal_steps.orchestration.checking.resolve_defaults import placed, resolve_defaults
from mortal_steps.places.base import place_of
from mortal_steps.plan.loader import override_config
from mortal_steps.plan.parts import Plan, SamplingPlan, WorkerPlans
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.plan import ActorPlan, TrainerPlan
from mortal_steps.rewards.plan import CodePlan
from mortal_steps.store import RunStore
from mortal_steps.types import Problem


def passing_workers(plans: WorkerPlans, num_steps: int = 1) -> Mapping[Role, WorkerSpec]:
    """Return workers without a run directory or a model, which are only good for checks; with
    `in_folder`, for a trial."""
    nowhere = Path(os.devnull)
    return worker_specs(plans, run_dir=nowhere, fingerprint="", model_path="", num_steps=num_steps)


def in_folder(worker: WorkerSpec, folder: Path, **settings: object) -> WorkerSpec:
    """Return the worker with `folder` as its run directory, and these of its settings changed."""
    return dataclasses.replace(worker, kwargs={**worker.kwargs, "run_dir": str(folder), **settings})


def ready_sampler(
    workers: Mapping[Role, WorkerSpec], store: RunStore, path: str, problems: Sequence[Problem]
) -> WorkerSpec:
    """Build the model in `path` if it is none yet, keep how chats are rendered, and return the
    rollout worker that samples with it in the folder of `store`. Raises what the actor raises."""
    plan: ActorPlan = workers["actor"].kwargs["plan"]
    root, model = store.root.absolute(), plan.trainer.model
    actor, rollout = (
        in_folder(workers[role], root, model_path=path) for role in ("actor", "rollout")
    )
    if model.new or model.warm_start:
        ref = store.write_record("problems.json", list(problems), list[Problem])
        call_once(actor, "build_base_model", problems=ref)
    if plan.environment.is_used:
        check_rows(plan.environment, problems)
        call_once(actor, "keep_chat")
    return rollout


def forecast_plan(config: RunConfig) -> ForecastPlan:
    """Return what a forecast is made from."""
    return ForecastPlan(
        trainer=Plan(config).trainer,
        compute=config.compute,
        place=place_of(Plan(config).place),
        sampled_model=config.sampled_model,
        max_tokens=config.max_tokens,
        num_shards=config.num_shards,
        problems_per_shard=config.problems_per_shard,
        saves_beside=bool(config.checkpoints.background),
        changed=lambda overrides: forecast_plan(override_config(config, overrides)),
    )


def settings_of_trial(config: RunConfig) -> RunConfig:
    """Return the configuration with which this machine samples as such a run would, on the run's
    GPUs. Raises `ConfigError` for workers on Modal, and what the checks before a run raise."""
    if not config.compute.place.shares_files:
        raise ConfigError(
            "compute.backend = 'modal': this samples on this machine; on Modal, `modal run -m "
            "mortal_deployments.modal_app::test_rollout_fn` does. Or set compute.backend = 'local'"
        )
    config = resolve_defaults(config)
    check_model(config.model, config.max_tokens)
    check_interpreters(config.compute, config.rollout, ("actor", "rollout"))
    check_engine(config.rollout, config.evaluation.temperature)
    return placed(config)


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgingPlan:
    """What finished models are judged with: as a run with these settings is evaluated."""

    trainer: TrainerPlan
    """The run's own, whose model says how other models are loaded."""
    sampling: SamplingPlan
    rewards: RewardsConfig
    """Those of evaluations."""
    evaluation: EvaluationConfig
    """`[evaluation]`, with the sets that have settings of their own."""
    training_rewards: RewardsConfig
    """`[rewards]`."""
    by_sets_alone: bool
    """Whether nothing but sets with rewards of their own and harnesses scores."""
    code: CodePlan
    threads: int | None
    """OMP_NUM_THREADS of the rollout workers; None: the default."""
    workers: Mapping[Role, WorkerSpec]
    """Workers for a whole model, which `in_folder` names, on the GPUs that are there now."""


def check_judged_here(config: RunConfig) -> None:
    """Raise `ConfigError` for a run elsewhere, and without rewards for one that learns from
    rows."""
    if not config.compute.place.here:
        raise ConfigError(
            f"compute.backend = {config.compute.backend!r}: models are compared on this "
            "machine; override compute.backend=local, and rollout.engine=transformers if there "
            "is no vLLM here"
        )
    # Then the set that decides is a harness, or has rewards of its own.
    sets_alone = bool(config.evaluation.decides) and not config.scores_held_out_as_usual
    if config.is_unscored and not (config.eval_rewards.are_named or sets_alone):
        raise ConfigError(
            f"the run learns without rewards (algorithm.type = {config.algorithm.type!r}), so it "
            "has none to compare models by; name some with --set "
            "evaluation.functions=['rewards.py:name'], or give the set that "
            "evaluation.decides names rewards of its own"
        )


def judging_plan(config: RunConfig, num_steps: int) -> JudgingPlan:
    """Return what models are judged with by the settings of a run of so many steps. Raises as
    `check_judged_here`."""
    check_judged_here(config)
    plan, plans = Plan(config), Plan(placed(config.of_finished_model())).workers
    if by_sets := config.is_unscored and not config.eval_rewards.are_named:
        plans = dataclasses.replace(
            plans, reward=dataclasses.replace(plans.reward, scores_sets_alone=True)
        )
    return JudgingPlan(
        trainer=plan.trainer,
        sampling=plan.sampling,
        rewards=config.eval_rewards,
        evaluation=config.evaluation,
        training_rewards=config.rewards,
        code=plan.code,
        threads=config.compute.local.rollout.threads,
        by_sets_alone=by_sets,
        workers=passing_workers(plans, num_steps),
    )
