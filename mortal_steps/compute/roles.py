"""Lists the workers of a run: the class of each role, and how it is constructed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mortal_steps.compute.base import Role, WorkerSpec
from mortal_steps.compute.placement import measures_memory, sharing_gpus
from mortal_steps.config import LocalConfig, RoleConfig, RunConfig
from mortal_steps.config.engines import TRAINING_MODULES
from mortal_steps.config.gpus import gpu_count
from mortal_steps.config.rollout import IN_PLACE, RELOAD
from mortal_steps.system.gpus import has_gpu

FACTORIES: dict[Role, str] = {
    "actor": "mortal_steps.policy.actor:Actor",
    "rollout": "mortal_steps.rollout.worker:RolloutWorker",
    "reward": "mortal_steps.rewards.worker:RewardWorker",
}
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
    common = {"run_dir": str(run_dir), "config": config}
    local = config.compute.local
    engine = config.rollout.engine_kind
    shares = config.compute.backend == "local"  # else there is one worker to a machine
    measures = shares and measures_memory(config)
    on_gpu = measures and any(term.needs_gpu for term in config.rewards.all_terms)
    return {
        "actor": _spec(
            "actor",
            local.actor,
            {
                **common,
                "model_path": model_path,
                "fingerprint": fingerprint,
                "num_steps": num_steps,
            },
            preload=TRAINING_MODULES if shares else (),
            rounding=rounding,
            defaults=ALLOCATOR if has_gpu() or not shares else {},
            shared_gpu=measures,
        ),
        "rollout": _spec(
            "rollout",
            local.rollout,
            {
                "run_dir": str(run_dir),
                **sampler_settings(sharing_gpus(config) if shares else config, model_path),
            },
            count=config.num_rollout_workers,
            prepare="start",
            preload=engine.preload if shares else (),
            rounding=rounding,
            shared_gpu=measures,
            starts_engine_in=_engine_starts_in(config) if measures else (),
        ),
        "reward": _spec(
            "reward",
            local.reward,
            {**common, "num_steps": num_steps},
            count=config.rewards.num_reward_workers,
            prepare="start",
            rounding=rounding,
            shared_gpu=on_gpu,
        ),
    }


def sampler_settings(config: RunConfig, model_path: str) -> dict[str, Any]:
    """Return the arguments of a rollout worker, but for the run directory."""
    return {
        "model_path": model_path,
        "model": config.sampled_model,
        "rollout": config.with_room_for_adapters().rollout,
        "seed": config.seed,
        "template_options": config.training.template_options,
    }


def on_one_node(specs: Mapping[Role, WorkerSpec], config: RunConfig) -> dict[Role, WorkerSpec]:
    """Return the workers of a node on Modal, on the GPUs of its container.

    What the configuration says of local processes (interpreter, devices, environment) is about
    another machine.
    """
    engine = config.rollout.engine_kind
    python = os.environ.get(engine.node_python) if engine.node_python else None
    actor = replace(specs["actor"], python=None, devices=(), env={})
    rollout = replace(specs["rollout"], python=python, devices=(), env={})
    if config.compute.modal.vllm_mode == "server":
        *others, last = map(str, range(gpu_count(config.compute.modal.gpu)))
        actor = replace(actor, devices=(",".join(others),))
        rollout = replace(rollout, devices=(last,))
    else:
        anywhere = config.compute.model_copy(update={"local": LocalConfig()})
        shared = sharing_gpus(config.model_copy(update={"compute": anywhere})).rollout
        shares = config.model_copy(update={"rollout": shared}).with_room_for_adapters()
        rollout = replace(rollout, kwargs={**rollout.kwargs, "rollout": shares.rollout})
    return {"actor": actor, "rollout": rollout}


def _spec(
    role: Role,
    place: RoleConfig,
    kwargs: dict[str, Any],
    *,
    count: int = 1,
    prepare: str | None = None,
    preload: tuple[str, ...] = (),
    rounding: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
    shared_gpu: bool = False,
    starts_engine_in: tuple[str, ...] = (),
) -> WorkerSpec:
    return WorkerSpec(
        factory=FACTORIES[role],
        kwargs=kwargs,
        count=count,
        prepare=prepare,
        python=place.python,
        threads=place.threads or 1,
        devices=place.devices,
        env=place.env,
        defaults=defaults or {},
        rounding=rounding,
        preload=preload,
        shared_gpu=shared_gpu,
        starts_engine_in=starts_engine_in,
    )


def _engine_starts_in(config: RunConfig) -> tuple[str, ...]:
    """Methods of a rollout worker in which its engine starts.

    `generate` loads the version of its shard if the worker was lost since the last one was loaded.
    """
    if (config.rollout.weight_sync or RELOAD) in IN_PLACE:
        return ("start",)
    return ("start", "sync_weights", "generate")
