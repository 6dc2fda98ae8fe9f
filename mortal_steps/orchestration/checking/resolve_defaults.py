"""Resolves the defaults that depend on the machine and the model, when a run begins."""

import logging
import os
from collections import defaultdict, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mortal_steps.compute.interpreters import rollout_interpreter
from mortal_steps.compute.placement import Placement, have_bfloat16
from mortal_steps.config import ComputeConfig, ModelConfig, RolloutConfig, TrainingConfig
from mortal_steps.config.rollout import SamplingType
from mortal_steps.config.training import Published
from mortal_steps.models.hub import find_commit, find_hub_file, is_hub_model
from mortal_steps.models.local_folder import read_context, weight_files
from mortal_steps.orchestration.batch_sources.base import has_samplers
from mortal_steps.orchestration.checking.own_rewards import (
    classes_in,
    with_described_rewards,
    with_own_rewards,
)
from mortal_steps.places.base import place_of
from mortal_steps.plan.loader import MISSING, find_key, write_key
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.plan import TrainerPlan
from mortal_steps.rollout.engines.table import ALWAYS_THERE, ENGINES
from mortal_steps.rollout.weight_sync.table import RELOAD, VOLUME

logger = logging.getLogger(__name__)

WORTH_TWO_THREADS = 1_000_000
"""Parameters from which on two threads train faster than one. With 87,000 to 750,000 one thread is
about three times as fast; with 1.5 million, two are 1.4 times as fast."""
FLOAT32_BYTES = 4
RESOLVED = (
    "model.revision",
    "rollout.num_shards",
    "rollout.engine",
    "rollout.dtype",
    "rollout.max_tokens",
    "rollout.weight_sync",
    "training.gradient_accumulation_steps",
    "training.lora.publish",
    "selection.rest",
    "compute.local.actor.threads",
    "compute.local.rollout.threads",
    "compute.local.reward.threads",
)
"""Keys whose defaults depend on the machine, the model and the version; they have values once a run
begins."""
MOST_THREADS = 4
"""What an actor takes of a machine's cores by default, at most."""


def resolve_defaults(config: RunConfig) -> RunConfig:
    """Return the configuration that a run begins with, all such defaults resolved. Raises what
    `hub.find_commit` and `Describer.describe` raise."""
    rewards = with_described_rewards(Plan(config).environment)
    config = config.model_copy(update={"rewards": rewards})
    commit = find_commit(config.model)
    model = config.model.model_copy(update={"revision": commit}) if commit else config.model
    plan = Plan(config)
    samples, place = has_samplers(plan.workers), place_of(plan.place)
    found = place.placement(samples=samples)
    resolved_config = resolved(
        pinned_now(config),
        cores=1 if _is_small(model) else _cores(),
        commit=commit,
        engine=config.rollout.engine or place.default_engine(),
        dtype=_find_sampling_type(plan.trainer, found),
        context=find_context(model),
        weight_sync=_find_weight_sync(config.rollout, found),
        num_rollout_workers=len(found.engines),
        on_gpu=bool(found.trainers),
    )
    if samples:
        trainer, sampled = Plan(resolved_config).trainer, resolved_config.max_tokens
        _warn(config.rollout, config.compute, trainer, sampled, on_gpus=bool(found.gpus))
    return resolved_config


def placed(config: RunConfig) -> RunConfig:
    """Return the configuration with what follows from the GPUs that are there now."""
    found = place_of(Plan(config).place).placed()
    return config.model_copy(update={"rollout": found.rollout, "compute": found.compute})


def pinned_now(config: RunConfig) -> RunConfig:
    """Return the same with models of the hub that score or teach at the commits of now; raises as
    `find_commit`."""

    def commit_of(table: str, model: ModelConfig) -> str | None:
        if table == "rewards":
            return find_commit(model, called="rewards: model", revised="rewards: revision")
        return find_commit(model, called=f"{table}.name_or_path", revised=f"{table}.revision")

    return config.pinned(commit_of)


def commit_before(model: ModelConfig, before: ModelConfig | None) -> str | None:
    """Return the commit with which a run has begun, if the model is still the same."""
    if before is None or before.name_or_path != model.name_or_path or model.is_pinned:
        return None
    return before.revision if before.is_pinned else None


def _find_sampling_type(plan: TrainerPlan, found: Placement) -> SamplingType | None:
    """Return the sampler's default type; None: the model's, or set already."""
    own = plan.rollout.engine is not None and plan.rollout.engine not in ENGINES
    asked, options = plan.rollout.dtype in (None, "auto"), plan.training.trl
    autocasts = options.get("bf16") is not False and not options.get("fp16")
    if not asked or own or not autocasts or plan.model.dtype != "float32":
        return None
    return "bfloat16" if have_bfloat16(found) else None


def _find_weight_sync(rollout: RolloutConfig, found: Placement) -> str:
    """Return the default of the way in which workers get new weights. On a GPU nothing is gained by
    giving back the old ones first, and an engine that can sleep pays for it."""
    on_gpus = all(found.engines) and not rollout.sleep_while_training
    return VOLUME if on_gpus else RELOAD


def find_context(model: ModelConfig) -> int | None:
    """Return the model's context in tokens; None if that cannot be read yet."""
    if model.new is not None:
        return model.new.max_position_embeddings
    if is_hub_model(model):
        path = find_hub_file(model, "config.json")
    else:
        path = Path(model.name_or_path) / "config.json"
    return read_context(path) if path is not None else None


def _warn(
    asked: RolloutConfig, compute: ComputeConfig, plan: TrainerPlan, sampled: int, *, on_gpus: bool
) -> None:
    """Warn of defaults that may surprise, of which `plan` and the `sampled` tokens are made. What
    is usual, such as no vLLM on a machine without a GPU, is only noted: the run says how it samples
    when it starts its workers."""
    if asked.engine is None and compute.place.here:
        chosen = plan.rollout.engine
        needed = ENGINES.entry(chosen or ALWAYS_THERE).needs
        has = f"has {needed}"
        if needed is None:
            others = [kind.needs for kind in ENGINES.values() if kind.needs]
            has = f"does not have {' or '.join(others)}"
        level = logging.WARNING if on_gpus and needed is None else logging.INFO
        python = rollout_interpreter(compute)
        logger.log(level, "rollout.engine = %r: %s %s", chosen, python, has)
    if plan.rollout.dtype != asked.dtype and plan.published_in:
        logger.warning(
            "rollout.dtype = %r: float32 weights are trained under bf16 autocast on a GPU, and "
            "rollout workers sample with copies of this type",
            plan.rollout.dtype,
        )
    trained = plan.training.max_completion_length
    if sampled > trained:
        logger.warning(
            "rollout.max_tokens = %d: reward functions see completions of up to that length, but "
            "training.max_completion_length cuts them to %d tokens before training",
            sampled,
            trained,
        )
    if asked.max_tokens is None and sampled < trained:
        usual = TrainingConfig.model_fields["max_completion_length"].default
        logger.log(
            logging.INFO if trained == usual else logging.WARNING,
            "rollout.max_tokens = %d, half of the model's context (training.max_completion_length "
            "would allow %d); the other half is for prompts",
            sampled,
            trained,
        )


def _is_small(model: ModelConfig) -> bool:
    """Whether its operations are so short that a second thread would slow training down."""
    if model.new is not None:
        return model.new.num_parameters < WORTH_TWO_THREADS
    weights = sum(path.stat().st_size for path in weight_files(Path(model.name_or_path)))
    return 0 < weights < WORTH_TWO_THREADS * FLOAT32_BYTES


def _cores() -> int:
    """Return the number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def resolved(
    config: RunConfig,
    *,
    cores: int,
    commit: str | None = None,
    engine: str = ALWAYS_THERE,
    dtype: SamplingType | None = None,
    context: int | None = None,
    weight_sync: str = RELOAD,
    num_rollout_workers: int | None = None,
    on_gpu: bool = False,
) -> RunConfig:
    """Return the configuration with values for what defaults to the machine and the model.

    The machine has `cores` CPU cores and, for rollout workers, this `engine` and `dtype`; the
    model is of that `commit` of the hub, and takes `context` tokens. Weights reach the workers
    by `weight_sync`. None: unknown or, as a `dtype`, the model's. The run has so many rollout
    workers where it begins, and its actor is `on_gpu` or not.
    """
    workers = num_rollout_workers or config.num_rollout_workers
    each = max(1, cores // config.training.ranks)
    actor = 1 if config.rollout.staleness else min(each, MOST_THREADS)
    room = min(config.model.max_model_len, context or config.model.max_model_len)
    of_rows = config.algorithm.judges_by_loss
    rows_of_a_step = config.training.batch_size if of_rows else config.training.rows
    published: Published | None = None
    if config.training.use_lora:
        adapters = ENGINES.entry(config.rollout.engine or engine).adapters
        published = "merged" if adapters is None or config.only_merged else "adapter"
    defaults = {
        "model.revision": commit,
        "rollout.num_shards": min(workers, config.training.batch_size),
        "rollout.engine": engine,
        "rollout.dtype": dtype,
        "rollout.max_tokens": min(config.max_tokens, room // 2),
        "rollout.weight_sync": weight_sync,
        "training.gradient_accumulation_steps": (
            config.training.accumulation_on_gpu(rows_of_a_step) if on_gpu else 1
        ),
        "training.lora.publish": published,
        "compute.local.actor.threads": actor,
        "compute.local.rollout.threads": 1,
        "compute.local.reward.threads": 1,
    }
    config = config.model_copy(update={"selection": config.selection.begun()})
    return _resolve(config.model_dump(), defaults, pinned=config.model.is_pinned)


def resolved_like(config: RunConfig, begun: RunConfig) -> RunConfig:
    """Return the configuration with what that of a run that has `begun` has for all that."""
    values, models = begun.model_dump(), defaultdict[str, deque[ModelConfig]](deque)
    begun.pinned(lambda table, model: models[table].append(model))

    def commit_of(table: str, model: ModelConfig) -> str | None:
        """Return the commit of the same term's model. One model may score at two revisions."""
        return commit_before(model, models[table].popleft() if models[table] else None)

    config = config.pinned(commit_of)
    if config.environment.is_used:
        rewards = with_own_rewards(config.rewards, classes_in(begun.rewards))
        config = config.model_copy(update={"rewards": rewards})
    found = {key: find_key(values, key) for key in RESOLVED}
    defaults = {key: value for key, value in found.items() if value is not MISSING}
    return _resolve(config.model_dump(), defaults, pinned=config.model.is_pinned)


def _resolve(values: dict[str, Any], defaults: Mapping[str, Any], *, pinned: bool) -> RunConfig:
    """Fill in the keys that have no value; a commit goes before a branch, which is not `pinned`."""
    for key, value in defaults.items():
        moves = key == "model.revision" and value and not pinned
        if moves or find_key(values, key) in (None, "auto"):
            write_key(values, key, value)
    return RunConfig.model_validate(values)
