"""What never changes about a run: its identity, its settings, its problems, its first model.

Nothing else in the run directory tells what is in these files, so a damaged one stops the run.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mortal_steps.config import RunConfig
from mortal_steps.config.loader import dump_toml
from mortal_steps.data import dataset_fingerprint
from mortal_steps.errors import CorruptFileError
from mortal_steps.files import digest_file, write_atomically
from mortal_steps.model_files import ModelFile, describe_model
from mortal_steps.runs.manifest import MANIFEST_FILE
from mortal_steps.schedule import num_train_steps
from mortal_steps.store import RunStore
from mortal_steps.types import FileRef, Problem

IDENTITY_FILE = "run.json"
CONFIG_FILE = "config.toml"
TRAIN_PROBLEMS = "data/train.json"
EVAL_PROBLEMS = "data/eval.json"
NO_OTHER_COPY = (
    "nothing else in the run tells what was in it; put the file back from a copy, or train again "
    "under another --run-id"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Parent:
    """The run that a fork goes on from, as it was when they parted."""

    run_id: str
    uid: str
    step: int
    """Train steps done; the fork's first checkpoint."""
    state_id: str
    """Chained id of the parent's state there."""
    fingerprint: str
    """Of the parent's configuration."""
    history_id: str | None = None
    """Chained id of the batches that led there; None where its `state_id` is that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunInfo:
    """What never changes about a run."""

    run_id: str
    uid: str
    """Random name of this run directory; tells two runs of one id apart."""
    fingerprint: str
    """Digest of what decides the run's numbers."""
    dataset_fingerprint: str
    working_dir: str
    """Where relative paths of the configuration start."""
    num_steps: int
    """Train steps of the whole run."""
    num_problems: int
    num_eval_problems: int
    config_sha256: str
    """Digest of config.toml."""
    train_problems: FileRef
    """Record of `list[Problem]`."""
    eval_problems: FileRef
    """Record of `list[Problem]`; an empty list without held-out problems."""
    created_at: float
    """Seconds since the epoch."""
    model_files: Mapping[str, ModelFile] = field(default_factory=dict)
    """What the folder `model.name_or_path` held, by file name; empty without such a folder."""
    parent: Parent | None = None
    """What the run is a fork of, if it is one."""

    @property
    def first_step(self) -> int:
        """Train steps done when the run began: a fork's are its parent's."""
        return self.parent.step if self.parent else 0


def read_identity(store: RunStore) -> RunInfo | None:
    """The run's identity; None where there is no run. Raises `CorruptFileError` for damage."""
    try:
        found = store.find_record(IDENTITY_FILE, RunInfo)
    except CorruptFileError as error:
        raise CorruptFileError(f"{error}; {NO_OTHER_COPY}") from None
    return found[1] if found else None


def check_config(store: RunStore, info: RunInfo) -> None:
    """Raise `CorruptFileError` unless config.toml is what it was when the run began."""
    path = store.path(CONFIG_FILE)
    if not path.exists() or digest_file(path) != info.config_sha256:
        raise CorruptFileError(
            f"{path} is missing or was altered since the run began; put it back as it was, or "
            "train with other settings under another --run-id"
        )


def check_problems(store: RunStore, info: RunInfo) -> None:
    """Raise `CorruptFileError` unless the problems are what they were when the run began."""
    for problems in (info.train_problems, info.eval_problems):
        try:
            store.check_record(problems)
        except CorruptFileError as error:
            raise CorruptFileError(f"{error}; {NO_OTHER_COPY}") from None


def check_never_begun(root: Path) -> None:
    """Raise `CorruptFileError` for a run that lost its identity: another one must not go on from
    its steps."""
    if any((root / name).exists() for name in (MANIFEST_FILE, "steps", "checkpoints", "weights")):
        raise CorruptFileError(f"{root / IDENTITY_FILE} is missing; {NO_OTHER_COPY}")


def write_identity(
    store: RunStore,
    config: RunConfig,
    train: list[Problem],
    held_out: list[Problem],
    parent: Parent | None = None,
) -> RunInfo:
    """Commit all of it, run.json last: without that, what a kill leaves is written over."""
    store.remove_leftovers("")
    store.remove_leftovers("data")
    settings = dump_toml(config).encode()
    write_atomically(store.path(CONFIG_FILE), settings)
    info = RunInfo(
        run_id=str(config.run_id),
        uid=uuid.uuid4().hex,
        fingerprint=config.fingerprint(),
        dataset_fingerprint=dataset_fingerprint(train),
        working_dir=str(Path.cwd()),
        num_steps=num_train_steps(len(train), config.training),
        num_problems=len(train),
        num_eval_problems=len(held_out),
        config_sha256=hashlib.sha256(settings).hexdigest(),
        train_problems=store.write_record(TRAIN_PROBLEMS, train, list[Problem]),
        eval_problems=store.write_record(EVAL_PROBLEMS, held_out, list[Problem]),
        created_at=time.time(),
        model_files=describe_model(config.model),
        parent=parent,
    )
    store.write_record(IDENTITY_FILE, info, RunInfo)
    return info
