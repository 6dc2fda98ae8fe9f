"""Lists the workers of a run: the class of each role, and how it is constructed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mortal_steps.compute.base import Role, WorkerSpec
from mortal_steps.compute.placement import measures_memory, sharing_gpus
from mortal_steps.config import RoleConfig, RolloutConfig
from mortal_steps.plan.parts import WorkerPlans
from mortal_steps.rollout.engines.table import TRAINING_MODULES
from mortal_steps.rollout.weight_sync.table import IN_PLACE, RELOAD
from mortal_steps.system.gpus import has_gpu

ALLOCATOR = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
"""Lets the actor's torch use memory again for tensors of other lengths. The older name,
PYTORCH_CUDA_ALLOC_CONF, goes before it."""


def worker_specs(
    plans: WorkerPlans,
    *,
    run_dir: Path,
    fingerprint: str,
    model_path: str,
    num_steps: int,
    rounding: Mapping[str, str] | None = None,
) -> dict[Role, WorkerSpec]:
    """One actor, the rollout workers and the reward workers of a run on this machine."""
    scoring = plans.reward
    compute = scoring.compute
    local, shares = compute.local, compute.place.here  # else there is one worker to a machine
    sampler, samplers = plans.rollout, plans.num_rollout_workers
    measures = shares and measures_memory(local, sampler.rollout, samplers)
    if shares:
        sampler = replace(sampler, rollout=sharing_gpus(local, sampler.rollout, samplers))
    return {
        "actor": WorkerSpec(
            factory="mortal_steps.policy.actor:Actor",
            kwargs={
                "run_dir": str(run_dir),
                "plan": plans.actor,
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
            kwargs={
                "run_dir": str(run_dir),
                "plan": sampler,
                "model_path": model_path,
                "num_steps": num_steps,
            },
            count=samplers,
            prepare="start",
            preload=sampler.rollout.engine_kind.preload if shares else (),
            rounding=rounding,
            shared_gpu=measures,
            starts_engine_in=_engine_starts_in(sampler.rollout) if measures else (),
            **_process(local.rollout),
        ),
        "reward": WorkerSpec(
            factory="mortal_steps.rewards.worker:RewardWorker",
            kwargs={"run_dir": str(run_dir), "plan": scoring, "num_steps": num_steps},
            count=scoring.rewards.num_reward_workers,
            prepare="start",
            rounding=rounding,
            shared_gpu=measures and scoring.needs_gpu,
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


def _engine_starts_in(rollout: RolloutConfig) -> tuple[str, ...]:
    """Methods of a rollout worker in which its engine starts: `generate` and `run_harness` load
    their version if the worker was lost since the last load."""
    if (rollout.weight_sync or RELOAD) in IN_PLACE:
        return ("start",)
    return ("start", "sync_weights", "generate", "run_harness")
