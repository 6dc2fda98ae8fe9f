"""What never changes about a run: its identity, its settings, its problems, its first model.

Nothing else in the run directory tells what is in these files, so a damaged one stops the run.
"""

import hashlib
import re
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from mortal_steps.config import ComputeConfig
from mortal_steps.data.held_out import eval_set_sizes
from mortal_steps.data.prepared import PREPARED, Prepared
from mortal_steps.data.problem_files import (
    EVAL_PROBLEMS,
    TRAIN_PROBLEMS,
    check_problem_file,
    dataset_fingerprint,
    keep_problems,
)
from mortal_steps.errors import CorruptFileError
from mortal_steps.models.local_folder import describe_model
from mortal_steps.plan.loader import dump_toml
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.algorithms.rows.epochs import num_steps
from mortal_steps.rewards.source_history import SOURCES_FILE
from mortal_steps.rewards.sources import begin_sources
from mortal_steps.runs.lease import LOCK_FILE, RECORD_FILE
from mortal_steps.schedule import num_train_steps
from mortal_steps.store import RunStore
from mortal_steps.store.files import write_atomically
from mortal_steps.store.identity import (
    CONFIG_FILE,
    IDENTITY_FILE,
    NO_OTHER_COPY,
)
from mortal_steps.system.libraries import computing_versions
from mortal_steps.system.rounding import rounding_environment
from mortal_steps.types import Problem
from mortal_steps.types.identity import CountedFrom, Parent, RunInfo

AT_THE_BEGINNING = {
    *(LOCK_FILE, RECORD_FILE, CONFIG_FILE, SOURCES_FILE, IDENTITY_FILE),
    *("data", TRAIN_PROBLEMS, EVAL_PROBLEMS, PREPARED),
}
"""What a run writes until its identity is whole: `write_identity`, and the lease of its driver."""


def python_of_samplers(compute: ComputeConfig) -> str | None:
    """Return the own interpreter of this machine's rollout workers; None if they have none."""
    return compute.local.rollout.python if compute.place.shares_files else None


def check_problems(store: RunStore, info: RunInfo) -> None:
    """Raise `CorruptFileError` unless the problems are what they were when the run began."""
    for problems in (info.train_problems, info.eval_problems):
        try:
            check_problem_file(store, problems)
        except CorruptFileError as error:
            raise CorruptFileError(f"{error}; {NO_OTHER_COPY}") from None


def write_identity(
    store: RunStore,
    config: RunConfig,
    train: Sequence[Problem],
    held_out: Sequence[Problem],
    parent: Parent | None = None,
    *,
    prepared: Prepared | None = None,
    fingerprint: str | None = None,
    rounding: Mapping[str, str] | None = None,
) -> RunInfo:
    """Commit all of it, run.json last: without that, a kill's rest is overwritten.

    A fork that changes nothing has its parent's `fingerprint`, each fork its parent's `rounding`;
    by default they are those of the configuration and of this process.
    """
    store.remove_leftovers("")
    store.remove_leftovers("data")
    begin_sources(store, Plan(config).code, Path.cwd(), step=parent.step if parent else 0)
    settings = dump_toml(config).encode()
    # Environment variables of workers are where keys and tokens are.
    private = any(role.env for _, role in config.compute.local)
    write_atomically(store.path(CONFIG_FILE), settings, private=private)
    train_file, eval_file = keep_problems(store, train, held_out)
    steps = num_train_steps(len(train), config.training)
    if prepared is not None:
        steps = num_steps(prepared.num_rows, config.training, prepared.counted_from)
    teacher = config.algorithm.teacher_model
    info = RunInfo(
        run_id=str(config.run_id),
        uid=uuid.uuid4().hex,
        fingerprint=fingerprint or config.fingerprint(),
        dataset_fingerprint=dataset_fingerprint(train),
        working_dir=str(Path.cwd()),
        num_steps=steps,
        num_problems=len(train),
        num_eval_problems=len(held_out),
        eval_sets=eval_set_sizes(held_out),
        config_sha256=hashlib.sha256(settings).hexdigest(),
        train_problems=train_file,
        eval_problems=eval_file,
        prepared_rows=prepared.keep(store) if prepared is not None else None,
        num_prepared=prepared.num_rows if prepared is not None else None,
        counted_from=prepared.counted_from if prepared is not None else CountedFrom(),
        created_at=time.time(),
        model_files=describe_model(config.model),
        teacher_files=describe_model(teacher) if teacher else {},
        parent=parent,
        host=socket.gethostname(),
        rounding=rounding_environment() if rounding is None else rounding,
        libraries=computing_versions(python_of_samplers(config.compute)),
    )
    store.write_record(IDENTITY_FILE, info, RunInfo)
    return info


def is_beginning(folder: Path) -> bool:
    """Return whether all that is there is what a run writes before its identity: anything else may
    be a registry, somebody's own, or of a run that has lost its identity."""
    found = (*folder.glob("*"), *folder.glob("data/*"))
    return not (folder / IDENTITY_FILE).exists() and all(
        _named(path.relative_to(folder)) in AT_THE_BEGINNING for path in found
    )


def _named(path: Path) -> str:
    """Return what this path will be called once it is whole."""
    partial = re.fullmatch(r"\.(.+)\.[0-9a-f]{8}\.partial", path.name)
    return str(path.with_name(partial[1]) if partial else path)
