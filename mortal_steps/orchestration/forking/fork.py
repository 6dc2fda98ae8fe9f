"""Creates a run that continues from a checkpoint of another run, its parent, with other settings.

The parent is only read, and may be training meanwhile. fork_files.py lists what a fork takes over.
The run directory appears by one rename, so there is either a whole fork or none.
"""

import logging
import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mortal_steps.config import ModelConfig, RolloutConfig, TrainingConfig
from mortal_steps.config.algorithm import TEACHER, AlgorithmConfig
from mortal_steps.config.data import ENVIRONMENT, made_rows
from mortal_steps.config.field_metadata import shapes_state
from mortal_steps.data.problem_files import dataset_fingerprint, open_problems
from mortal_steps.errors import ConfigError, CorruptFileError, StoreError
from mortal_steps.models.local_folder import check_model
from mortal_steps.orchestration.checking import preflight
from mortal_steps.orchestration.checking.own_rewards import with_other_environments
from mortal_steps.orchestration.checking.preflight import Problems
from mortal_steps.orchestration.checking.resolve_defaults import (
    find_commit_of_teacher,
    find_reward_commit,
    find_teacher_commit,
)
from mortal_steps.orchestration.forking.fork_files import ForkFiles
from mortal_steps.orchestration.forking.fork_rows import count_on, order_under_way, rows_of_parent
from mortal_steps.orchestration.open_run import changes_between
from mortal_steps.plan.loader import override_config, parse_config
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.algorithms.rows.epochs import num_steps as num_steps_of_rows
from mortal_steps.policy.on_disk import checkpoints, recovery, weights
from mortal_steps.runs.identity import check_problems, write_identity
from mortal_steps.runs.logs import SELECTIONS
from mortal_steps.runs.run import Run, check_never_begun, find_run
from mortal_steps.schedule import num_train_steps
from mortal_steps.selection.table import ALL
from mortal_steps.store import RunStore, shared_memory
from mortal_steps.store.files import hidden_beside, sync_to_disk
from mortal_steps.store.identity import IDENTITY_FILE, check_config
from mortal_steps.types import Checkpoint, Problem

logger = logging.getLogger(__name__)

DECIDING_HISTORY = ("rewards", "environment", "selection.column", "data.on_long")
"""Keys without which what a selection knows of the problems means something else."""


def fork_run(
    parent: Run,
    overrides: Sequence[str] = (),
    *,
    at_step: int | None = None,
    run_id: str | None = None,
    say: Callable[[str], None] | None = None,
    tell: Callable[[str], None] | None = None,
) -> Run:
    """Create a fork beside its parent, which stands at step `at_step` (default: the newest
    checkpoint).

    Relative paths of the configuration start in the current folder, which should be the parent's
    `working_dir`. `say` is called with a line on each check, and `tell` with one on
    other rows than the parent's.

    Raises `ConfigError` for overrides that the checkpoint does not fit, `ModelError` for a local
    base model that is not what the parent began with, `StoreError` for a checkpoint that is missing
    or not whole and for a run id that is taken, `CorruptFileError` for damage elsewhere in the
    parent, and what `preflight.check` raises. After an error nothing is left behind.
    """
    _check_place(parent)
    check_config(parent.store, parent.info)
    check_model(parent.config.model, parent.info.model_files)
    if teacher := parent.config.algorithm.teacher_model:
        check_model(teacher, parent.info.teacher_files, called=TEACHER)
    config = _configure(parent, overrides, run_id)
    root = Path(config.runs_dir) / str(config.run_id)
    if (root / IDENTITY_FILE).exists():
        raise StoreError(
            f"run {config.run_id} exists in {config.runs_dir}; choose another --run-id, or "
            f"continue it with `mortal resume {config.run_id}`"
        )
    check_never_begun(root)
    _check_kind(parent, config.algorithm)
    changes = changes_between(parent.config.identity(), config.identity())
    _check_shape(parent, config.model, config.training, changes)
    saved = _find_checkpoint(parent, at_step)
    _check_versions(parent, config.rollout, saved)
    for killed in root.parent.glob(f".{root.name}.????????.partial"):
        shutil.rmtree(killed)
    beside = hidden_beside(root, "partial")
    try:
        # A parent that older code began has another fingerprint than this code would give it.
        fingerprint = config.fingerprint() if changes else parent.info.fingerprint
        files = ForkFiles(parent, saved, RunStore(beside), config.rollout, fingerprint)
        files.take_state()  # at once: a parent that runs may remove it while all else is checked
        same = _same_problems(parent, changes)
        problems = preflight.check(config, same, say, tell=tell)
        if config.model.warm_start:
            _check_problems(parent, problems[0])
        rows, num_steps = problems.prepared, num_train_steps(len(problems.train), config.training)
        if rows is not None:
            told = tell or logger.info
            rows = count_on(parent, rows, config.training, saved.step, changes, told)
            num_steps = num_steps_of_rows(rows.num_rows, config.training, rows.counted_from)
        _check_steps_ahead(config.training, saved, num_steps)
        info = write_identity(
            files.store,
            config,
            problems.train,
            problems.held_out,
            parent=files.origin,
            prepared=rows,
            fingerprint=fingerprint,
            rounding=parent.info.rounding,
        )
        begins_anew = same is None or any(is_below(key, DECIDING_HISTORY) for key in changes)
        files.take_records(info.num_eval_problems, without={SELECTIONS} if begins_anew else set())
        if tell is not None and begins_anew and config.selection.type != ALL:
            tell(
                "the selection knows nothing of the problems yet: they, their rewards or its "
                "column are not those of the fork's parent"
            )
        if rows is not None:
            files.take_order(order_under_way(parent, rows, saved.step))
        fork = Run(files.store, config, info)
        judging = ("rewards", "evaluation", "data", "environment", "rollout", "model")
        judged_anew = any(is_below(key, judging) for key in changes)
        fork.note_checkpoint(files.checkpoint(), None if judged_anew else fork.score(saved.step))
        if not root.exists():
            shared_memory.remove_folder(root)  # of a run of this name, killed and deleted
        _put_in_place(beside, root)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return find_run(root.parent, root.name)


def _check_place(parent: Run) -> None:
    """Raise `StoreError` if no run can be made beside the parent."""
    folder = parent.store.root.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise StoreError(
            f"{folder} is not writable ({error.strerror}), and a fork is made beside its parent; "
            f"make it writable, or fork a copy of {parent.store.root} in another folder"
        ) from error


def _check_kind(parent: Run, after: AlgorithmConfig) -> None:
    """Raise `ConfigError` for another algorithm where one of the two learns from rows."""
    before = parent.config.algorithm
    if before.type != after.type and (before.judges_by_loss or after.judges_by_loss):
        raise ConfigError(
            f"algorithm.type cannot be changed from {before.type!r} to {after.type!r} in a fork: "
            f"the two learn from other things. Train a new run from the model of "
            f"{parent.info.run_id}, such as its final/ (model.name_or_path)"
        )


def _configure(parent: Run, overrides: Sequence[str], run_id: str | None) -> RunConfig:
    """Return the parent's configuration with the overrides and the fork's own run id."""
    before = parent.config
    chosen = override_config(before, overrides)
    if chosen.runs_dir != before.runs_dir:
        raise ConfigError("runs_dir cannot be changed: a fork is created beside its parent")
    if run_id is None and chosen.run_id != before.run_id:
        run_id = chosen.run_id
    if run_id is None:
        name = chosen.name if chosen.name != before.name else parent.info.run_id
        run_id = f"{name}-fork-{uuid.uuid4().hex[:6]}"
    place = {
        "run_id": run_id,
        "runs_dir": str(parent.store.root.parent.absolute()),
    }
    config = parse_config(chosen.model_dump() | place, origin="mortal fork")
    if config.environment != before.environment:
        rewards = with_other_environments(Plan(config).environment, before.rewards)
        config = config.model_copy(update={"rewards": rewards})
    config = config.with_reward_commits(find_reward_commit)
    config = config.with_teacher_at(find_teacher_commit(config.algorithm))
    return config.with_teacher_commits(find_commit_of_teacher).with_own_seed()


def _put_in_place(beside: Path, root: Path) -> None:
    try:
        beside.rename(root)
    except OSError as error:
        raise StoreError(
            f"{root} cannot be created ({error.strerror}); choose another --run-id"
        ) from error
    sync_to_disk(root.parent)


# what may be changed


def is_below(key: str, sections: Sequence[str]) -> bool:
    return any(key == section or key.startswith(f"{section}.") for section in sections)


def _check_shape(
    parent: Run,
    model: ModelConfig,
    training: TrainingConfig,
    changes: Mapping[str, tuple[Any, Any]],
) -> None:
    """Raise `ConfigError` for a change that the checkpoint does not fit."""
    also = []
    if model.new or model.warm_start:
        also.append("seed")  # the starting model is made from it
    if model.warm_start:
        also.append("compute.local.actor.threads")  # so is a warm start
    if parent.info.prepared_rows is not None:
        also.append("training.ranks")  # each has random streams of its own in a checkpoint
    for key, (before, after) in changes.items():
        idle = is_below(key, ["training.lora"]) and not training.use_lora
        if (shapes_state(RunConfig, key) and not idle) or key in also:
            raise ConfigError(
                f"{key} cannot be changed in a fork: it was {before!r} in {parent.info.run_id} and "
                f"would be {after!r}, which its checkpoints do not fit. Leave it as it was, or "
                "train a new run from a model folder of that run, such as final/ "
                "(model.name_or_path)"
            )


def _same_problems(parent: Run, changes: Mapping[str, tuple[Any, Any]]) -> Problems | None:
    """Return the parent's problems if they are the fork's; they are not read again."""
    data, info, store = parent.config.data, parent.info, parent.store
    sources = (data.source, *data.eval_sources.values())
    sections = ["data", *(["seed"] if any(map(made_rows, sources)) else [])]
    sections += ["environment"] if ENVIRONMENT in sources else []
    if any(is_below(key, sections) and key != "data.on_long" for key in changes):
        return None
    check_problems(store, info)
    return Problems(
        open_problems(store, info.train_problems),
        open_problems(store, info.eval_problems),
        rows_of_parent(parent, changes) if info.prepared_rows is not None else None,
    )


def _check_problems(parent: Run, train: Sequence[Problem]) -> None:
    if dataset_fingerprint(train) != parent.info.dataset_fingerprint:
        raise ConfigError(
            "[data] cannot be changed in this fork: the starting model was warm-started on the "
            f"training problems of {parent.info.run_id}. Leave it as it was, or train a new run "
            "from a model folder of that run, such as final/ (model.name_or_path)"
        )


def _check_steps_ahead(training: TrainingConfig, saved: Checkpoint, num_steps: int) -> None:
    if num_steps <= saved.step:
        raise ConfigError(
            f"training.max_steps = {training.max_steps}: the run is {num_steps} steps long "
            f"and the fork would begin at step {saved.step}; choose an earlier --at-step, or more "
            "steps with --set training.max_steps=..."
        )


# what the parent has


def _find_checkpoint(parent: Run, at_step: int | None) -> Checkpoint:
    """Raise `StoreError` where it is not whole; the message names those that are."""
    store, name = parent.store, parent.info.run_id
    if at_step is None:
        newest = checkpoints.newest_whole(store)
        if newest is None:
            raise StoreError(
                f"run {name} has no whole checkpoint to fork at; one is saved every "
                f"{parent.config.checkpoints.save_steps} steps (checkpoints.save_steps)"
            )
        return newest
    found = checkpoints.find(store, at_step)
    if found is not None:
        return found
    whole = [step for step in checkpoints.saved_steps(store) if checkpoints.find(store, step)]
    raise StoreError(
        f"run {name} {_what_is_wrong(store, at_step)}; whole checkpoints there: "
        f"{', '.join(map(str, whole)) or 'none'}"
    )


def _what_is_wrong(store: RunStore, at_step: int) -> str:
    if at_step == 0:
        return "has nothing to fork at step 0: start a new run with `mortal train`"
    path = checkpoints.path_of(at_step)
    if not store.path(path).exists():
        return f"has no checkpoint of step {at_step}"
    try:
        store.verify_folder(path, store.folder_digest(path))
    except CorruptFileError as error:
        return f"has a damaged checkpoint of step {at_step} ({error})"
    return f"has removed its checkpoint of step {at_step} just now"


def _check_versions(parent: Run, rollout: RolloutConfig, saved: Checkpoint) -> None:
    """Raise `StoreError` unless the older weights that sample the fork's first steps are there."""
    for version in recovery.versions_before(rollout, saved.step):
        if weights.find_in(parent.store, version) is None:
            raise StoreError(
                f"step {saved.step} is sampled with the weights of step {version} "
                f"(rollout.staleness = {rollout.staleness}, rollout.sync_weights_every = "
                f"{rollout.sync_weights_every}), and run {parent.info.run_id} does not have "
                "them any more; choose another --at-step, or --set rollout.staleness=0 --set "
                "rollout.sync_weights_every=1"
            )
