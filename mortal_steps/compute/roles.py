"""Lists the workers of a run: the class of each role, and how it is constructed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from mortal_steps.compute.base import Role, WorkerSpec
from mortal_steps.compute.placement import measures_memory, sharing_gpus
from mortal_steps.config import RoleConfig, RolloutConfig
from mortal_steps.plan.parts import actor_plan, code_plan, scoring_plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.rewards.sources import check_files
from mortal_steps.rollout.engines.table import TRAINING_MODULES
from mortal_steps.rollout.episodes.base import ToolSettings
from mortal_steps.rollout.weight_sync.table import IN_PLACE, RELOAD
from mortal_steps.system.gpus import has_gpu

ALLOCATOR = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
"""Lets the actor's torch use memory again for tensors of other lengths. The older name,
PYTORCH_CUDA_ALLOC_CONF, goes before it."""


def worker_specs(
    config: RunConfig,
    *,
    run_dir: Path,
    fingerprint: str,
    model_path: str,
    num_steps: int,
    rounding: Mapping[str, str] | None = None,
) -> dict[Role, WorkerSpec]:
    """One actor, the rollout workers and the reward workers of a run on this machine."""
    local = config.compute.local
    shares = config.compute.place.here  # else there is one worker to a machine
    samplers = config.num_rollout_workers
    sampling = sampler_settings(config, model_path, num_steps=num_steps)
    if shares:
        sampling["rollout"] = sharing_gpus(local, sampling["rollout"], samplers)
    measures = shares and measures_memory(local, config.rollout, samplers)
    return {
        "actor": WorkerSpec(
            factory="mortal_steps.policy.actor:Actor",
            kwargs={
                "run_dir": str(run_dir),
                "plan": actor_plan(config),
                "model_path": model_path,
                "fingerprint": fingerprint,
                "num_steps": num_steps,
            },
            preload=TRAINING_MODULES if shares else (),
            rounding=rounding,
            defaults=ALLOCATOR if has_gpu() or not shares else {},
            shared_gpu=measures,
            **_process(local.actor),
        ),
        "rollout": WorkerSpec(
            factory="mortal_steps.rollout.worker:RolloutWorker",
            kwargs={**sampling, "run_dir": str(run_dir)},
            count=samplers,
            prepare="start",
            preload=config.rollout.engine_kind.preload if shares else (),
            rounding=rounding,
            shared_gpu=measures,
            starts_engine_in=_engine_starts_in(config.rollout) if measures else (),
            **_process(local.rollout),
        ),
        "reward": WorkerSpec(
            factory="mortal_steps.rewards.worker:RewardWorker",
            kwargs={"run_dir": str(run_dir), "plan": scoring_plan(config), "num_steps": num_steps},
            count=config.rewards.num_reward_workers,
            prepare="start",
            rounding=rounding,
            shared_gpu=measures and any(term.needs_gpu for term in config.rewards.all_terms),
            **_process(local.reward),
        ),
    }


def _process(role: RoleConfig) -> dict[str, Any]:
    """Return what the configuration says of the processes of a role on this machine."""
    return {
        "python": role.python,
        "threads": role.threads or 1,
        "devices": role.devices,
        "env": role.env,
    }


def sampler_settings(config: RunConfig, model_path: str, *, num_steps: int = 1) -> dict[str, Any]:
    """Return a rollout worker's arguments but the run directory; a trial has one step."""
    updates = config.training.optimizer_steps_per_batch
    return {
        "model_path": model_path,
        "model": config.sampled_model,
        "rollout": config.with_room_for_adapters().rollout,
        "seed": config.seed,
        "template_options": config.training.template_options,
        "environment": config.environment,
        "rewards": config.rewards,
        "eval_rewards": config.eval_rewards,
        "tools": ToolSettings(
            passed_on=config.seen_by_environments,
            app=config.compute.modal.app,
            modal=config.compute.away_from_rollouts,
            updates_per_step=updates,
            num_updates=num_steps * updates,
        ),
        "check_code": partial(check_files, plan=code_plan(config), working_dir=Path()),
    }


def _engine_starts_in(rollout: RolloutConfig) -> tuple[str, ...]:
    """Methods of a rollout worker in which its engine starts: `generate` loads its shard's version
    if the worker was lost since the last load."""
    if (rollout.weight_sync or RELOAD) in IN_PLACE:
        return ("start",)
    return ("start", "sync_weights", "generate")
