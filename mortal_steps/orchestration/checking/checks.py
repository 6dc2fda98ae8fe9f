"""Checks of single settings, each before anything is started for the run."""

import logging
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from mortal_steps.compute.memory import BYTES
from mortal_steps.config import (
    CheckpointsConfig,
    EnvironmentConfig,
    ModelConfig,
    RolloutConfig,
    TrainingConfig,
)
from mortal_steps.config.selection import SelectionConfig
from mortal_steps.config.sharding import check_sharding
from mortal_steps.config.training import FULL
from mortal_steps.config.trl_options import check_names, config_of
from mortal_steps.data.values import TEXT_ALONE
from mortal_steps.errors import ConfigError, DataError, StoreError
from mortal_steps.extensions import nearest
from mortal_steps.models.hub import is_hub_model
from mortal_steps.models.local_folder import (
    check_folder,
    check_listed_weights,
    takes_pictures,
)
from mortal_steps.models.shape import count_parameters
from mortal_steps.orchestration.checking.resolve_defaults import find_context
from mortal_steps.report.units import counted
from mortal_steps.rollout.engines.table import ALWAYS_THERE
from mortal_steps.store.shared_memory import check_shared_memory
from mortal_steps.types import Problem

logger = logging.getLogger(__name__)

ENDLESS = ("constant", "constant_with_warmup", "inverse_sqrt")
"""Schedules of the learning rate that do not depend on the number of steps."""

TRAINS_ON_SEVERAL = (
    "ACCELERATE_USE_DEEPSPEED",
    "ACCELERATE_USE_FSDP",
    "ACCELERATE_USE_MEGATRON_LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG",
)
"""What `accelerate launch` sets for a configuration of its own."""
MORE_VERSIONS = 3
"""Versions in shared memory at a time beside one for each step of staleness: those before and after
the step that was taken last, and the one that is written."""
PICTURES = ("image", "images")
"""Columns in which TRL looks for pictures."""
CONTEXT = "(the smaller of model.max_model_len and the model's own limit)"


def check_environment(environment: Mapping[str, str] = os.environ) -> None:
    """Raise `ConfigError` for what would end, or hold up, the workers of this machine."""
    if sys.flags.optimize >= 2:
        raise ConfigError(
            f"PYTHONOPTIMIZE={sys.flags.optimize} (python -OO) removes docstrings, and "
            "transformers cannot be imported without its own; unset it, or set it to 1"
        )
    processes = environment.get("WORLD_SIZE", "1")
    if processes not in ("", "1"):
        raise ConfigError(
            f"WORLD_SIZE = {processes!r} says that this process is one of several of a distributed "
            "job, as torchrun starts them, and torch would wait for the others; MORTAL starts its "
            "own ranks (training.ranks). Call it once, without torchrun, and unset WORLD_SIZE, "
            "RANK and LOCAL_RANK"
        )
    for name in TRAINS_ON_SEVERAL:
        if environment.get(name, "").lower() in ("1", "true", "yes", "on"):
            raise ConfigError(
                f"{name} = {environment[name]!r}, as `accelerate launch` sets it, asks accelerate "
                "to train on several GPUs; MORTAL has training.ranks for that. Call it without "
                f"accelerate, and unset {name}"
            )


def check_runs_dir(runs_dir: Path) -> None:
    """Raise `StoreError` unless the folder of all runs exists or can be made, and is writable."""
    try:
        runs_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=runs_dir):
            pass
    except OSError as error:
        raise StoreError(
            f"runs_dir {runs_dir} is not writable: {error.strerror}; choose another --runs-dir"
        ) from None


def check_model(model: ModelConfig, max_tokens: int) -> None:
    """Raise unless a local model is whole and its context fits `max_tokens` and a prompt."""
    if model.new is None and not is_hub_model(model):
        check_folder(Path(model.name_or_path))
        check_listed_weights(Path(model.name_or_path))
    context = context_of(model)
    if max_tokens >= context:
        raise ConfigError(
            f"rollout.max_tokens = {max_tokens} leaves no room for a prompt: the context is "
            f"{context} tokens {CONTEXT}"
        )


def check_trl_options(algorithm: str, model: ModelConfig, training: TrainingConfig) -> None:
    """Raise `ConfigError` for options of TRL that are refused by their names, which takes no TRL;
    those that remain are checked with it."""
    kind = config_of(algorithm)
    if kind is None:
        return
    check_names(training.trl, kind)
    if training.ranks > 1 and training.sharding == FULL:
        check_sharding(model, training)


def context_of(model: ModelConfig) -> int:
    """Return how many tokens a prompt and its completion may have together."""
    return min(model.max_model_len, find_context(model) or model.max_model_len)


def check_column(selection: SelectionConfig, problem: Problem) -> None:
    """Raise `ConfigError` unless the rows have the column that the selection goes by."""
    column = getattr(selection, "column", None)
    if column is not None and column not in problem.columns:
        raise ConfigError(
            f"selection.column = {column!r}: the rows have no such column; they have "
            f"{', '.join(problem.columns) or 'none beside the prompt'}"
        )


def check_pictures(source: str, model: ModelConfig, problem: Problem) -> None:
    """Raise `ConfigError` if training would leave out the pictures that stock TRL trains with. A
    model on the hub, of which nothing is known here, may take them."""
    if model.new is not None:
        return
    for name in PICTURES:
        if name in problem.columns and (
            is_hub_model(model) or takes_pictures(Path(model.name_or_path) / "config.json")
        ):
            raise ConfigError(
                f"data.source = {source!r} has a column {name!r}, in which TRL looks for pictures, "
                f"and {TEXT_ALONE}; rename or remove the column to train without it"
            )


def check_rows(environment: EnvironmentConfig, rows: Iterable[Problem]) -> None:
    """Raise `DataError` for rows that the environments cannot use."""
    if not environment.is_used:
        return
    for row in rows:
        if isinstance(row.prompt, str):
            raise DataError(
                f"row {row.id}: its prompt is text, and tools are called in chats; write "
                '[{"role": "user", "content": ...}], or leave [environment] out'
            )
        if not environment.has_names:
            return  # prompts are all of one kind
        name = row.columns.get("environment")
        if name not in environment.factories:
            near = nearest(str(name), environment.factories, cutoff=0.6)
            raise DataError(
                f"row {row.id}: its column 'environment' is {name!r}, and environment.factory has "
                f"{', '.join(map(repr, environment.factories))}; "
                + (f"did you mean {near!r}?" if near else "name one of these in each row")
            )


def check_no_rows(environment: EnvironmentConfig, training: TrainingConfig) -> None:
    """Raise `ConfigError` unless a run without a dataset knows how long it is, and with what."""
    if environment.has_names:
        raise ConfigError(
            "data.source is not set, and environment.factory names several environments: a row's "
            "column 'environment' says which is its own; set data.source, or give one factory"
        )
    if training.max_steps <= 0:
        raise ConfigError(
            f"training.max_steps = {training.max_steps}, and without data.source nothing "
            "says how long to train; set training.max_steps"
        )


def check_room_for_weights(rollout: RolloutConfig, model: ModelConfig, *, adapter: bool) -> None:
    """Raise `ConfigError` if `rollout.weight_sync` is `direct` and shared memory is missing or too
    small for `model`, as it is sampled, or its adapter. The size of a model is only known if it is
    a local folder. For other models, the actor checks this before step 0."""
    if rollout.shares_weights:
        published = 0 if adapter else _published_bytes(model)  # an adapter is a small file
        check_shared_memory((rollout.staleness + MORE_VERSIONS) * published)


def _published_bytes(model: ModelConfig) -> int:
    if model.new is not None or is_hub_model(model):
        return 0
    folder = Path(model.name_or_path)
    if model.dtype == "auto":
        return sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    return count_parameters(folder) * BYTES[model.dtype]


def check_engine(rollout: RolloutConfig, eval_temperature: float) -> None:
    """Raise `ConfigError` unless the engine can sample as `[rollout]` and `[evaluation]` ask."""
    name, kind = rollout.engine or ALWAYS_THERE, rollout.engine_kind
    asked = {"rollout": rollout.temperature, "evaluation": eval_temperature}
    for table, temperature in asked.items():
        if temperature > kind.highest_temperature:
            raise ConfigError(
                f"{table}.temperature = {temperature:g}: {name} accepts at most "
                f"{kind.highest_temperature:g}; lower it, or use rollout.engine = {ALWAYS_THERE!r}"
            )
    if rollout.sleep_while_training and not kind.sleeps:
        raise ConfigError(
            f"rollout.sleep_while_training = true: {name} does not give its memory back. Leave it "
            'out, or use rollout.engine = "vllm"'
        )
    if name == "vllm" and rollout.engine_options.get("data_parallel_size", 1) != 1:
        raise ConfigError(
            "rollout.engine_options.data_parallel_size: vLLM refuses it where no server starts the "
            "engines. Each rollout worker has one: set rollout.num_rollout_workers instead"
        )
    if rollout.share_prefill and not kind.shares_prefill:
        own = " shares what prompts have in common by itself" if name == "vllm" else ""
        raise ConfigError(
            f"rollout.share_prefill = true: {name}{own or ' cannot be told so'}. Leave it out, or "
            f"use rollout.engine = {ALWAYS_THERE!r}"
        )
    if rollout.seeds == "engine" and not kind.one_seed:
        raise ConfigError(
            f'rollout.seeds = "engine": {name} gives each completion a seed of its own. Leave '
            'rollout.seeds at "request", or use rollout.engine = "vllm"'
        )


def check_adapter(
    rollout: RolloutConfig, training: TrainingConfig, only_merged: str | None
) -> None:
    """Raise `ConfigError` unless the engine can compute a LoRA adapter beside its base model, if
    that is published. `only_merged` is the key by which no engine can, if there is one."""
    if not training.publishes_adapter:
        return
    lora = training.lora
    name, adapters = rollout.engine or ALWAYS_THERE, rollout.engine_kind.adapters
    if only_merged:
        raise ConfigError(
            f'training.lora.publish = "adapter": engines do not compute beside a base what '
            f'{only_merged} makes of the adapter; leave it out, or write "merged": rollout workers '
            "then receive whole models"
        )
    if adapters is None:
        return  # an engine of the user's own knows what it takes
    merged = (
        'set training.lora.publish = "merged", with which rollout workers receive whole models, or '
        f"rollout.engine = {ALWAYS_THERE!r}"
    )
    if adapters.room_for(lora.r) is None:
        raise ConfigError(
            f"training.lora.r = {lora.r}: {name} takes adapters of rank {adapters.ranks[-1]} or "
            f"less; {merged}"
        )
    if not adapters.embeddings and (found := lora.adapted_embeddings()):
        raise ConfigError(
            f"training.lora.target_modules adapts {found[0]}: {name} takes no adapters of "
            f"embeddings; {merged}"
        )


def warn_of_schedule(training: TrainingConfig) -> None:
    """Warn where the learning rate's schedule goes by a length that the run may not have."""
    schedule = training.trl.get("lr_scheduler_type", "linear")
    if training.until.ends and schedule not in ENDLESS:
        logger.warning(
            "training.until may end the run before its last step, to which the learning rate goes "
            "down (training.trl.lr_scheduler_type = %r): it will not be at its end then. Of the "
            "schedules, %s have no length",
            schedule,
            ", ".join(ENDLESS),
        )


def warn_of_unjudged_checkpoints(
    saves: CheckpointsConfig, every: int | None, num_steps: int
) -> None:
    """Warn of checkpoints before the end that cannot be the best one, because they have none of the
    evaluations after `every` so many steps."""
    if not every:
        return
    saved = range(saves.save_steps, num_steps, saves.save_steps)
    unjudged = [step for step in saved if step % every]
    if saves.keep_best and unjudged:
        logger.warning(
            "checkpoints.save_steps = %d is no multiple of evaluation.eval_steps = %d: %d of the "
            "%s before the end have no evaluation at their step, such as that of step %d, and "
            "checkpoints.keep_best compares none of them; make it a multiple",
            *(saves.save_steps, every, len(unjudged)),
            counted(len(saved), "checkpoint"),
            unjudged[0],
        )
