"""What never changes about a run: its identity, its settings, its problems, its first model.

Nothing else in the run directory tells what is in these files, so a damaged one stops the run.
"""

from __future__ import annotations

import hashlib
import re
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mortal_steps.config import RoleConfig, RunConfig
from mortal_steps.config.loader import dump_toml
from mortal_steps.errors import CorruptFileError
from mortal_steps.files import digest_file, write_atomically
from mortal_steps.model_files import ModelFile, describe_model
from mortal_steps.problem_files import dataset_fingerprint
from mortal_steps.rewards.source_record import begin_sources
from mortal_steps.runs.manifest import MANIFEST_FILE
from mortal_steps.runs.problems import check_problem_file, keep_problems
from mortal_steps.schedule import num_train_steps
from mortal_steps.store import RunStore
from mortal_steps.types import FileRef, Problem

IDENTITY_FILE = "run.json"
CONFIG_FILE = "config.toml"
WRITTEN_AS = {
    "uid": r"[0-9a-f]{32}",
    "run_id": r"[A-Za-z0-9][A-Za-z0-9._-]*",
    "working_dir": r"/.*",
}
"""What some names in run.json look like."""
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
    """The parent's."""
    history_id: str | None = None
    """Chained id of the batches that led there; None where its `state_id` is that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunInfo:
    """What never changes about a run."""

    run_id: str
    uid: str
    """Random name of this run directory; tells two runs of one id apart."""
    fingerprint: str
    """Digest of what decides the run's numbers, as the code that began the run understood it."""
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
    """Problem file, or record of `list[Problem]` (`runs.problems`)."""
    eval_problems: FileRef
    """Record of `list[Problem]`; an empty list without held-out problems."""
    created_at: float
    """Seconds since the epoch."""
    model_files: Mapping[str, ModelFile] = field(default_factory=dict)
    """What the folder `model.name_or_path` held, by file name; empty without such a folder."""
    parent: Parent | None = None
    """What the run is a fork of, if it is one."""
    host: str | None = None
    """Name of the machine that the run began on, where that was noted."""

    @property
    def first_step(self) -> int:
        """Train steps done when the run began: a fork's are its parent's."""
        return self.parent.step if self.parent else 0


def read_identity(store: RunStore) -> RunInfo | None:
    """The run's identity; None where there is no run. Raises `CorruptFileError` for damage, and
    `NewerFormatError`."""
    try:
        found = store.find_record(IDENTITY_FILE, RunInfo)
    except CorruptFileError as error:
        raise CorruptFileError(f"{error}; {NO_OTHER_COPY}") from None
    if found is None:
        return None
    _check_names(store, found[1])
    return found[1]


def _check_names(store: RunStore, info: RunInfo) -> None:
    """Raise `CorruptFileError` for names that no run has: files elsewhere are found by them."""
    for name, pattern in WRITTEN_AS.items():
        value = getattr(info, name)
        if not re.fullmatch(pattern, value):
            raise CorruptFileError(
                f"{store.path(IDENTITY_FILE)}: {name} = {value!r} is none that MORTAL writes; "
                f"{NO_OTHER_COPY}"
            )


def places_of(config: RunConfig) -> dict[str, RoleConfig]:
    """`[compute.local]`, by role."""
    local = config.compute.local
    return {"actor": local.actor, "rollout": local.rollout, "reward": local.reward}


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
            check_problem_file(store, problems)
        except CorruptFileError as error:
            raise CorruptFileError(f"{error}; {NO_OTHER_COPY}") from None


def check_never_begun(root: Path) -> None:
    """Raise `CorruptFileError` for a run that lost its identity: another one must not go on from
    its steps."""
    if any((root / name).exists() for name in (MANIFEST_FILE, "steps", "checkpoints", "weights")):
        raise CorruptFileError(f"{root / IDENTITY_FILE} is missing; {NO_OTHER_COPY}")


def _has_secrets(config: RunConfig) -> bool:
    """Whether it holds environment variables, which is where keys and tokens are."""
    local = config.compute.local
    return any(role.env for role in (local.actor, local.rollout, local.reward))


def write_identity(
    store: RunStore,
    config: RunConfig,
    train: Sequence[Problem],
    held_out: Sequence[Problem],
    parent: Parent | None = None,
    *,
    fingerprint: str | None = None,
) -> RunInfo:
    """Commit all of it, run.json last: without that, what a kill leaves is written over.

    The `fingerprint` is the configuration's, but for a fork with its parent's.
    """
    store.remove_leftovers("")
    store.remove_leftovers("data")
    begin_sources(store, config, Path.cwd(), step=parent.step if parent else 0)
    settings = dump_toml(config).encode()
    write_atomically(store.path(CONFIG_FILE), settings, private=_has_secrets(config))
    train_file, eval_file = keep_problems(store, train, held_out)
    info = RunInfo(
        run_id=str(config.run_id),
        uid=uuid.uuid4().hex,
        fingerprint=fingerprint or config.fingerprint(),
        dataset_fingerprint=dataset_fingerprint(train),
        working_dir=str(Path.cwd()),
        num_steps=num_train_steps(len(train), config.training),
        num_problems=len(train),
        num_eval_problems=len(held_out),
        config_sha256=hashlib.sha256(settings).hexdigest(),
        train_problems=train_file,
        eval_problems=eval_file,
        created_at=time.time(),
        model_files=describe_model(config.model),
        parent=parent,
        host=socket.gethostname(),
    )
    store.write_record(IDENTITY_FILE, info, RunInfo)
    return info
