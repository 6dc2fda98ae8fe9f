"""The model that a run starts from: built (`[model.new]`), warm-started (`[model.warm_start]`), or
used as it is.

A model that is made is kept in a cache, `<runs_dir>/.models/<digest of everything that made it>`.
"""

import hashlib
import json
import logging
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mortal_steps import __version__
from mortal_steps.config import ModelConfig
from mortal_steps.data.problem_files import dataset_fingerprint
from mortal_steps.errors import CorruptFileError, ModelError
from mortal_steps.models.hub import model_folder
from mortal_steps.policy.algorithms.base import AdapterBase
from mortal_steps.policy.on_disk.weights import weights_digest
from mortal_steps.policy.plan import ActorPlan
from mortal_steps.store import RunStore
from mortal_steps.store.files import digest_file, locked
from mortal_steps.types import Problem
from mortal_steps.types.references import Below

logger = logging.getLogger(__name__)

RECORD_FILE = "base_model.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class StartingModel:
    """A model that was made for the beginning of a run."""

    key: Below
    """Name of its folder in the cache."""
    sha256: str
    """Digest of the folder's manifest."""
    weights_sha256: str
    """sha256 of its safetensors, as in `FinalModel`."""
    path: str
    """Where the model was when the run began."""


def base_of(store: RunStore, model: ModelConfig, model_path: str) -> AdapterBase:
    """Return the base of a run's adapter; one made for the run has its path at the run's beginning,
    so the adapter is the same wherever it goes on."""
    made = _find_record(store)
    return AdapterBase.at(model, model_path) if made is None else AdapterBase(name=made.path)


def model_cache(runs_dir: Path) -> Path:
    return runs_dir.absolute() / ".models"


def base_model_path(plan: ActorPlan, dataset_fingerprint: str) -> str:
    """Where `make_base_model` puts the model, or `model.name_or_path`, without torch."""
    if plan.trainer.model.new is None and plan.trainer.model.warm_start is None:
        return plan.trainer.model.name_or_path
    return str(plan.cache_dir / _fingerprint(plan, dataset_fingerprint))


def first_model(store: RunStore, plan: ActorPlan, dataset_fingerprint: str) -> str:
    """`base_model_path` for the run in `store`. A run that has begun keeps the folder with which it
    began, even if this code would choose another name."""
    path = base_model_path(plan, dataset_fingerprint)
    made = _find_record(store)
    if made is None or path == plan.trainer.model.name_or_path:
        return path
    return str(Path(path).with_name(made.key))


def make_base_model(plan: ActorPlan, problems: Sequence[Problem], *, key: str | None = None) -> str:
    """Path of the starting model, which is made in the plan's `cache_dir` unless it is already
    there whole.

    `problems` are the training rows, which a warm start imitates. `key` is the name of its folder,
    if a run has begun with it. Raises `ModelError` or `DataError` as `build_model` and `warm_start`
    do.
    """
    if plan.trainer.model.new is None and plan.trainer.model.warm_start is None:
        return plan.trainer.model.name_or_path
    store = RunStore(plan.cache_dir)
    if key is None:
        key = Path(base_model_path(plan, dataset_fingerprint(problems))).name
    with locked(store.path(f".{key}.lock")):  # runs that begin alike make it once
        try:
            store.verify_folder(key, store.folder_digest(key))
        except CorruptFileError as error:
            if store.path(key).exists():
                logger.warning("the starting model is made again: %s", error)
            store.remove_leftovers("", of=key)
            with store.committing_folder(key) as folder:
                _make(folder, plan, problems)
    return str(plan.cache_dir / key)


def keep_base_model(store: RunStore, folder: Path) -> None:
    """Record the model that the run begins with. Raises `ModelError` for other weights than
    recorded: other versions of the libraries have made it again."""
    made = StartingModel(
        key=folder.name,
        sha256=RunStore(folder.parent).folder_digest(folder.name),
        weights_sha256=weights_digest(folder),
        path=str(folder.absolute()),
    )
    begun = _find_record(store)
    if begun is not None and begun.weights_sha256 != made.weights_sha256:
        raise ModelError(
            f"{folder} has the weights {made.weights_sha256[:12]}, the run began with "
            f"{begun.weights_sha256[:12]} of {begun.key[:12]}; continue with the versions of "
            "MORTAL and its libraries that it began with, or train again under another --run-id"
        )
    if begun is not None:
        made = replace(made, path=begun.path)
    if begun != made:
        store.write_record(RECORD_FILE, made, StartingModel)


def _find_record(store: RunStore) -> StartingModel | None:
    """Return the starting model's record, if any; a damaged one is logged."""
    found = store.find_whole(RECORD_FILE, StartingModel, "written again")
    return found[1] if found else None


def _make(folder: Path, plan: ActorPlan, problems: Sequence[Problem]) -> None:
    # Imported where used: a path needs no torch, and a model as it is no trainer.
    from mortal_steps.policy.starting_model.new_model import build_model

    model = plan.trainer.model
    with tempfile.TemporaryDirectory() as scratch:
        start = model_folder(model.name_or_path, model)
        if model.new is not None:
            start = str(folder) if model.warm_start is None else scratch
            build_model(Path(start), model.new, plan.trainer.seed)
        if model.warm_start is not None:
            from mortal_steps.policy.starting_model.warm_start import warm_start

            warm_start(
                start,
                folder,
                problems,
                model.warm_start,
                plan.trainer.seed,
                dtype="float32" if model.new is not None else model.dtype,
                trust_remote_code=model.trust_remote_code,
            )


def _fingerprint(plan: ActorPlan, data: str) -> str:
    """Digest of all that decides the model's bits; rows only for a warm start."""
    model = plan.trainer.model
    parts: dict[str, Any] = {"seed": plan.trainer.seed, "version": __version__}
    if model.new is not None:
        parts["new"] = model.new.model_dump(mode="json")
    else:
        start = Path(model.name_or_path)
        parts["start"] = [model.name_or_path, model.revision, model.dtype, _digests(start)]
    if model.warm_start is not None:
        parts["warm_start"] = [model.warm_start.model_dump(mode="json"), data]
        parts["threads"] = plan.threads
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _digests(folder: Path) -> dict[str, str]:
    """Digests of a local model's files; empty for a hub model."""
    if not folder.is_dir():
        return {}
    return {path.name: digest_file(path) for path in sorted(folder.iterdir()) if path.is_file()}
