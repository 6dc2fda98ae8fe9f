"""How a container starts the workers of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from mortal_steps.compute.base import Role, WorkerSpec
from mortal_steps.compute.placement import gpus_per_engine, sharing_gpus
from mortal_steps.config import ComputeConfig, LocalConfig, RoleConfig
from mortal_steps.config.gpus import gpu_count
from mortal_steps.rewards.plan import ScoringPlan
from mortal_steps.rollout.engines.table import ALWAYS_THERE, ENGINES
from mortal_steps.rollout.plan import SamplerPlan


def in_containers(
    specs: Mapping[Role, WorkerSpec], compute: ComputeConfig
) -> dict[Role, WorkerSpec]:
    """Return the workers as a container starts them; those of a node share its GPUs.
    Interpreter, devices and environment of local processes are left out."""
    there = {role: replace(spec, python=None, devices=(), env={}) for role, spec in specs.items()}
    there["reward"] = _with_interpreters_of_image(there["reward"])
    if compute.mode != "single_node":
        return there
    plan: SamplerPlan = there["rollout"].kwargs["plan"]
    engine = plan.rollout.engine_kind
    python = os.environ.get(engine.node_python) if engine.node_python else None
    actor, rollout = there["actor"], replace(there["rollout"], python=python)
    if compute.modal.vllm_mode == "server":
        gpus = [str(number) for number in range(gpu_count(compute.modal.gpu))]
        size = gpus_per_engine(plan.rollout)
        actor = replace(actor, devices=(",".join(gpus[:-size]),))
        rollout = replace(rollout, devices=(",".join(gpus[-size:]),))
    else:
        shared = replace(plan, rollout=sharing_gpus(LocalConfig(), plan.rollout, 1))
        rollout = replace(rollout, kwargs={**rollout.kwargs, "plan": shared})
    return {**there, "actor": actor, "rollout": rollout}


def _with_interpreters_of_image(reward: WorkerSpec) -> WorkerSpec:
    """Return reward workers whose models with an engine run under the interpreter that has it in
    this image."""
    plan: ScoringPlan = reward.kwargs["plan"]
    engine = ENGINES.entry(plan.needs_engine or ALWAYS_THERE)
    python = os.environ.get(engine.node_python) if engine.node_python else None
    local = plan.compute.local
    local = local.model_copy(update={"rollout": RoleConfig(python=python)})
    compute = plan.compute.model_copy(update={"local": local})
    return replace(reward, kwargs={**reward.kwargs, "plan": replace(plan, compute=compute)})
