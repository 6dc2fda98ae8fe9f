"""The model a run starts from: built (`[model.new]`), warm-started (`[model.warm_start]`), or as
named. What is made is kept in a cache, `<runs_dir>/.models/<digest of everything that made it>`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mortal_steps.config import RunConfig
from mortal_steps.data import dataset_fingerprint
from mortal_steps.errors import CorruptFileError
from mortal_steps.store import RunStore, digest_file
from mortal_steps.types import Problem


def model_cache(config: RunConfig) -> Path:
    """Folder of the models made for the runs of one runs directory."""
    return Path(config.runs_dir).absolute() / ".models"


def base_model_path(
    config: RunConfig, dataset_fingerprint: str, *, cache_dir: Path | None = None
) -> str:
    """Where `make_base_model` puts the model, or `model.name_or_path` if it makes none.

    Needs no torch. `cache_dir` is `model_cache(config)` by default.
    """
    if config.model.new is None and config.model.warm_start is None:
        return config.model.name_or_path
    return str((cache_dir or model_cache(config)) / _fingerprint(config, dataset_fingerprint))


def make_base_model(*, cache_dir: Path, config: RunConfig, problems: Sequence[Problem]) -> str:
    """Path of the starting model, made in `cache_dir` if it is not there whole.

    `problems` are the training rows, which a warm start imitates. Raises `ModelError` or
    `DataError` as `build_model` and `warm_start` do.
    """
    path = base_model_path(config, dataset_fingerprint(problems), cache_dir=cache_dir)
    if config.model.new is None and config.model.warm_start is None:
        return path
    store, key = RunStore(cache_dir), Path(path).name
    # A damaged folder is made again: it holds nothing that its key does not tell.
    with contextlib.suppress(CorruptFileError):
        return str(store.verify_folder(key, store.folder_digest(key)))
    with store.committing_folder(key) as folder:
        _make(folder, config, problems)
    return path


def _make(folder: Path, config: RunConfig, problems: Sequence[Problem]) -> None:
    # Imported where used: a path needs no torch, and a model as it is no trainer.
    from mortal_steps.policy.new_model import build_model

    model = config.model
    with tempfile.TemporaryDirectory() as scratch:
        start = model.name_or_path
        if model.new is not None:
            start = str(folder) if model.warm_start is None else scratch
            build_model(Path(start), model.new, config.seed)
        if model.warm_start is not None:
            from mortal_steps.policy.warm_start import warm_start

            warm_start(
                start,
                folder,
                problems,
                model.warm_start,
                config.seed,
                dtype="float32" if model.new is not None else model.dtype,
                trust_remote_code=model.trust_remote_code,
            )


def _fingerprint(config: RunConfig, data: str) -> str:
    """Digest of all that decides the model's bits; the rows count only if it imitates them."""
    model = config.model
    parts: dict[str, Any] = {"seed": config.seed}
    if model.new is not None:
        parts["new"] = model.new.model_dump(mode="json")
    else:
        parts["start"] = [model.name_or_path, model.dtype, _digests(Path(model.name_or_path))]
    if model.warm_start is not None:
        parts["warm_start"] = [model.warm_start.model_dump(mode="json"), data]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _digests(folder: Path) -> dict[str, str]:
    """A local model may change under the same path; a hub name has no files here."""
    if not folder.is_dir():
        return {}
    return {path.name: digest_file(path) for path in sorted(folder.iterdir()) if path.is_file()}
