"""What has to be so before a run is forked: of its parent, and of what the fork changes."""

import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from mortal_steps.config import ModelConfig, RolloutConfig, TrainingConfig
from mortal_steps.config.algorithm import TEACHER, AlgorithmConfig
from mortal_steps.config.field_metadata import shapes_state
from mortal_steps.data.problem_files import dataset_fingerprint
from mortal_steps.errors import ConfigError, CorruptFileError, StoreError
from mortal_steps.models.local_folder import check_model
from mortal_steps.policy.on_disk import checkpoints, recovery, weights
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.store.identity import check_config
from mortal_steps.types import Checkpoint, Problem


def check_parent(parent: Run) -> None:
    """Raise unless a run can be made beside the parent, whose configuration and models are what
    they were when it began."""
    _check_place(parent)
    check_config(parent.store, parent.info)
    check_model(parent.config.model, parent.info.model_files)
    if teacher := parent.config.algorithm.teacher_model:
        check_model(teacher, parent.info.teacher_files, called=TEACHER)


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


def check_kind(parent: Run, after: AlgorithmConfig) -> None:
    """Raise `ConfigError` for another algorithm where one of the two learns from rows."""
    before = parent.config.algorithm
    if before.type != after.type and (before.judges_by_loss or after.judges_by_loss):
        raise ConfigError(
            f"algorithm.type cannot be changed from {before.type!r} to {after.type!r} in a fork: "
            f"the two learn from other things. Train a new run from the model of "
            f"{parent.info.run_id}, such as its final/ (model.name_or_path)"
        )


def is_below(key: str, sections: Sequence[str]) -> bool:
    """Return whether a key is one of these, or below one of them."""
    return any(key == section or key.startswith(f"{section}.") for section in sections)


def check_shape(
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
        if (shapes_state(type(parent.config), key) and not idle) or key in also:
            raise ConfigError(
                f"{key} cannot be changed in a fork: it was {before!r} in {parent.info.run_id} and "
                f"would be {after!r}, which its checkpoints do not fit. Leave it as it was, or "
                "train a new run from a model folder of that run, such as final/ "
                "(model.name_or_path)"
            )


def check_warm_started(parent: Run, train: Sequence[Problem]) -> None:
    """Raise `ConfigError` for other problems than those of a warm start."""
    if dataset_fingerprint(train) != parent.info.dataset_fingerprint:
        raise ConfigError(
            "[data] cannot be changed in this fork: the starting model was warm-started on the "
            f"training problems of {parent.info.run_id}. Leave it as it was, or train a new run "
            "from a model folder of that run, such as final/ (model.name_or_path)"
        )


def check_steps_ahead(training: TrainingConfig, saved: Checkpoint, num_steps: int) -> None:
    """Raise `ConfigError` for a fork that would begin at its end."""
    if num_steps <= saved.step:
        raise ConfigError(
            f"training.max_steps = {training.max_steps}: the run is {num_steps} steps long "
            f"and the fork would begin at step {saved.step}; choose an earlier --at-step, or more "
            "steps with --set training.max_steps=..."
        )


def find_checkpoint(parent: Run, at_step: int | None) -> Checkpoint:
    """Return the checkpoint to fork at. Raise `StoreError` where it is not whole; the message names
    those that are."""
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


def check_versions(parent: Run, rollout: RolloutConfig, saved: Checkpoint) -> None:
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
