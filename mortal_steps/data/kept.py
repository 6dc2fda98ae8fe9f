"""The problems of a run, in its directory: `data/train.arrow` and `data/eval.json`.

Each evaluation samples the held-out problems whole, so they are one record; of the training
problems a step reads its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from mortal_steps.data.problem_files import SUFFIX, ProblemFile, write_problems
from mortal_steps.errors import CorruptFileError, StoreError
from mortal_steps.store import RunStore
from mortal_steps.store.files import digest_file, writing
from mortal_steps.types import FileRef, Problem

TRAIN_PROBLEMS = "data/train.arrow"
EVAL_PROBLEMS = "data/eval.json"
PROBLEMS = (TRAIN_PROBLEMS, EVAL_PROBLEMS)
"""Names of what a run may have."""


def keep_problems(
    store: RunStore, train: Sequence[Problem], held_out: Sequence[Problem]
) -> tuple[FileRef, FileRef]:
    """Commit the training and the held-out problems. A whole file of training problems is linked if
    the file system can do that."""
    path = store.path(TRAIN_PROBLEMS)
    with writing(path):
        write_problems(path, train)
    return (
        FileRef(path=TRAIN_PROBLEMS, sha256=digest_file(path)),
        store.write_record(EVAL_PROBLEMS, list(held_out), list[Problem]),
    )


def open_problems(store: RunStore, ref: FileRef) -> Sequence[Problem]:
    """The problems that `ref` stands for. Raises `CorruptFileError`."""
    if ref.path.endswith(SUFFIX):
        return ProblemFile(store.path(ref.path))
    return store.read_record(ref, list[Problem])


def find_train_problems(store: RunStore) -> Sequence[Problem]:
    """The training problems of a run that may have lost its identity. Raises `StoreError` if it has
    none."""
    path = store.path(TRAIN_PROBLEMS)
    if not path.exists():
        raise StoreError(f"{path} holds no problems; read the data first")
    return ProblemFile(path)


def check_problem_file(store: RunStore, ref: FileRef) -> None:
    """Raise `CorruptFileError` unless the file is, byte for byte, what `ref` stands for."""
    if not ref.path.endswith(SUFFIX):
        store.check_record(ref)
        return
    path = store.path(ref.path)
    try:
        found = digest_file(path)
    except FileNotFoundError:
        raise CorruptFileError(f"{path} is missing") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    if found != ref.sha256:
        raise CorruptFileError(
            f"{path} is damaged: it hashes to {found[:12]}, recorded {ref.sha256[:12]}"
        )
