"""Problems on disk: an Arrow file, mapped into memory, as `datasets` writes and reads them.

    id         train-7
    prompt     as JSON: a text, or the messages of a chat
    columns    the other columns of the row, as a JSON object

Prompt and columns are JSON because rows of one dataset may have values of different types under one
name, and reward functions receive them as they were. `datasets.Dataset.from_file` opens the file.

A run has its training problems in `data/train.arrow`, of which a step reads its own, and the
held-out ones, which each evaluation samples whole, in one record, `data/eval.json`.

pyarrow is imported where a file is opened, so that importing this module costs nothing.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, overload

from mortal_steps.errors import CorruptFileError, StoreError
from mortal_steps.store import RunStore
from mortal_steps.store.files import digest_file, hidden_beside, link_file, sync_to_disk, writing
from mortal_steps.types import FileRef, Problem, Prompt

TRAIN_PROBLEMS = "data/train.arrow"
EVAL_PROBLEMS = "data/eval.json"
PROBLEMS = (TRAIN_PROBLEMS, EVAL_PROBLEMS)
"""Names of what a run may have."""

SUFFIX = ".arrow"
FIELDS = ("id", "prompt", "columns")
ROWS_PER_BATCH = 1000
"""Rows of each record batch but the last."""

Texts = tuple[str, str, str]
"""A row as it is in the file: its id, its prompt and its columns, the latter two as JSON."""

encode_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
"""Compact JSON with the keys in their given order."""


class ProblemFile(Sequence[Problem]):
    """A file's problems as a sequence that keeps none in memory and travels as the path. Raises
    `CorruptFileError` where the file is missing or is no problem file."""

    def __init__(self, path: Path, *, keeps: object | None = None) -> None:
        """Keep `keeps` alive as long as this object, such as the folder of a temporary file."""
        self.path = path.absolute()
        self._keeps = keeps

    def __reduce__(self) -> tuple[Any, ...]:
        return ProblemFile, (self.path,)

    def __len__(self) -> int:
        return sum(batch.num_rows for batch in self._batches)

    @overload
    def __getitem__(self, index: int) -> Problem: ...

    @overload
    def __getitem__(self, index: slice) -> list[Problem]: ...

    def __getitem__(self, index: int | slice) -> Problem | list[Problem]:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"{self.path} has no row {index}")
        number, row = divmod(index % len(self), ROWS_PER_BATCH)
        batch = self._batches[number]
        return _problem(*(batch.column(name)[row].as_py() for name in FIELDS))

    def __iter__(self) -> Iterator[Problem]:
        return (_problem(*texts) for texts in self.texts())

    def texts(self) -> Iterator[Texts]:
        for batch in self._batches:
            yield from zip(*(batch.column(name).to_pylist() for name in FIELDS), strict=True)

    def prompts(self) -> Iterator[Prompt]:
        for batch in self._batches:
            yield from map(json.loads, batch.column("prompt").to_pylist())

    @functools.cached_property
    def fingerprint(self) -> str:
        """`dataset_fingerprint`; reads every row the first time."""
        return _digest(self.texts())

    @functools.cached_property
    def _batches(self) -> list[Any]:
        import pyarrow

        try:
            with pyarrow.memory_map(os.fsencode(self.path)) as content:  # a str must be UTF-8
                table = pyarrow.ipc.open_stream(content).read_all()
        except FileNotFoundError:
            raise CorruptFileError(f"{self.path} is missing") from None
        except (OSError, ValueError) as error:
            raise CorruptFileError(f"{self.path} is damaged: {error}") from error
        if table.column_names != list(FIELDS):
            raise CorruptFileError(f"{self.path} is damaged: it has other columns than problems")
        batches: list[Any] = table.to_batches()
        return batches


def _problem(problem_id: str, prompt: str, columns: str) -> Problem:
    return Problem(id=problem_id, prompt=json.loads(prompt), columns=json.loads(columns))


def texts_of(problem: Problem) -> Texts:
    return problem.id, encode_json(problem.prompt), encode_json(dict(problem.columns))


def dataset_fingerprint(problems: Sequence[Problem]) -> str:
    """Return the sha256 over ids, prompts and columns: a function of the rows alone."""
    if isinstance(problems, ProblemFile):
        return problems.fingerprint
    return _digest(map(texts_of, problems))


def _digest(rows: Iterable[Texts]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(encode_json(row).encode() + b"\n")
    return digest.hexdigest()


def prompts_of(problems: Sequence[Problem]) -> Iterator[Prompt]:
    if isinstance(problems, ProblemFile):
        return problems.prompts()
    return (problem.prompt for problem in problems)


def select(problems: Sequence[Problem], rows: array[int]) -> Sequence[Problem]:
    """Return the problems at these ascending positions; those of a file in another file."""
    if not isinstance(problems, ProblemFile):
        return [problems[row] for row in rows]
    path = problems.path.with_name(f"{problems.path.stem}-{len(rows)}{SUFFIX}")
    write_texts(path, _at(problems.texts(), rows))
    return ProblemFile(path, keeps=problems._keeps)


def _at(texts: Iterable[Texts], positions: Iterable[int]) -> Iterator[Texts]:
    remaining = iter(positions)
    wanted = next(remaining, None)
    for at, row in enumerate(texts):
        if at == wanted:
            yield row
            wanted = next(remaining, None)


def write_problems(path: Path, problems: Sequence[Problem]) -> None:
    """Make `path` a file of these problems; an existing file is linked if possible."""
    if isinstance(problems, ProblemFile):
        path.unlink(missing_ok=True)  # it may be a link: never to be written into
        link_file(problems.path, path)
    else:
        write_texts(path, map(texts_of, problems))


def write_texts(path: Path, rows: Iterable[Texts]) -> None:
    """Write rows to a file, which appears at `path` whole and synced to disk."""
    import pyarrow

    text = pyarrow.string()
    schema = pyarrow.schema([(name, text) for name in FIELDS])
    beside, remaining = hidden_beside(path, "partial"), iter(rows)
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with (
                pyarrow.OSFile(os.fsencode(beside), "wb") as sink,
                pyarrow.ipc.new_stream(sink, schema) as writer,
            ):
                while some := list(islice(remaining, ROWS_PER_BATCH)):
                    columns = [pyarrow.array(values, text) for values in zip(*some, strict=True)]
                    writer.write_batch(pyarrow.record_batch(columns, schema=schema))
            sync_to_disk(beside)
            beside.rename(path)
            sync_to_disk(path.parent)
    finally:
        beside.unlink(missing_ok=True)


def keep_problems(
    store: RunStore, train: Sequence[Problem], held_out: Sequence[Problem]
) -> tuple[FileRef, FileRef]:
    """Commit training and held-out problems; a whole file is linked if possible."""
    path = store.path(TRAIN_PROBLEMS)
    with writing(path):
        write_problems(path, train)
    return (
        FileRef(path=TRAIN_PROBLEMS, sha256=digest_file(path)),
        store.write_record(EVAL_PROBLEMS, list(held_out), list[Problem]),
    )


def open_problems(store: RunStore, ref: FileRef) -> Sequence[Problem]:
    """Return the problems that `ref` stands for. Raises `CorruptFileError`."""
    if ref.path.endswith(SUFFIX):
        return ProblemFile(store.path(ref.path))
    return store.read_record(ref, list[Problem])


def find_train_problems(store: RunStore) -> Sequence[Problem]:
    """Return the problems of a run without identity. Raises `StoreError` without any."""
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
