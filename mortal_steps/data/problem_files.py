"""Problems on disk: a Parquet file from which single rows are read without the others.

    id         train-7
    prompt     the text; of a chat, its messages as JSON
    chat       whether it is one
    columns    the other columns of the row, as a JSON object

Columns are JSON because rows of one dataset may hold values of different types under one name, and
reward functions get them as they were. A row may lack some; the file's own metadata names all of
them, and what a row lacks is None. Where the metadata says `whole`, none lacks any, and the names
in each object are in alphabetical order. Rows lie in groups of a thousand, compressed together:
reading one decodes its group. Every page has a checksum, which reading checks.

pyarrow is imported where a file is opened, so that importing this module costs nothing.
"""

from __future__ import annotations

import functools
import json
import os
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, overload

from mortal_steps.data.problem_writer import METADATA, ProblemWriter
from mortal_steps.data.row_text import Row, digest_encoded, digest_rows
from mortal_steps.errors import CorruptFileError
from mortal_steps.store import check_format
from mortal_steps.store.files import link_file
from mortal_steps.types import Problem, Prompt

SUFFIX = ".parquet"


class ProblemFile(Sequence[Problem]):
    """The problems of a file, or some of them: a sequence that holds none in memory.

    Travels between processes as the file's path. Raises `CorruptFileError` where the file is
    missing, damaged or no problem file, and `NewerFormatError`.
    """

    def __init__(
        self,
        path: Path,
        rows: array[int] | None = None,
        *,
        fingerprint: str | None = None,
        keeps: object | None = None,
    ) -> None:
        """`rows`: those of the file's that count, in order; all by default. `fingerprint` is
        theirs, where it is known; `keeps` is what the file lives as long as."""
        self.path = path.absolute()
        self._chosen = rows
        self._keeps = keeps
        self._reading = threading.Lock()
        if fingerprint is not None:
            self.fingerprint = fingerprint

    def __reduce__(self) -> tuple[Any, ...]:
        return ProblemFile, (self.path, self._chosen)

    def __len__(self) -> int:
        return self._starts[-1] if self._chosen is None else len(self._chosen)

    @overload
    def __getitem__(self, index: int) -> Problem: ...

    @overload
    def __getitem__(self, index: slice) -> list[Problem]: ...

    def __getitem__(self, index: int | slice) -> Problem | list[Problem]:
        if isinstance(index, slice):
            return self.at(range(*index.indices(len(self))))
        if not -len(self) <= index < len(self):
            raise IndexError(f"{self.path} has no row {index}")
        (problem,) = self.at([index % len(self)])
        return problem

    def __iter__(self) -> Iterator[Problem]:
        for table in self._tables():
            for problem_id, prompt, columns in self._rows(table):
                yield Problem(id=problem_id, prompt=prompt, columns=columns)

    def at(self, positions: Sequence[int]) -> list[Problem]:
        """The problems at these positions, in their order; each group is decoded once."""
        rows = positions if self._chosen is None else [self._chosen[each] for each in positions]
        found: dict[int, Row] = {}
        for group, inside in groupby(sorted(set(rows)), self._group_of):
            wanted = list(inside)
            table = self._group(group).take([row - self._starts[group] for row in wanted])
            found |= zip(wanted, self._rows(table), strict=True)
        chosen = (found[row] for row in rows)
        return [Problem(id=known, prompt=prompt, columns=own) for known, prompt, own in chosen]

    def prompts(self) -> Iterator[Prompt]:
        """The prompt of every problem, in order."""
        for table in self._tables(["prompt", "chat"]):
            for prompt, chat in zip(*(column.to_pylist() for column in table.columns), strict=True):
                yield json.loads(prompt) if chat else prompt

    @functools.cached_property
    def fingerprint(self) -> str:
        """`dataset_fingerprint`; reads every row the first time."""
        if self._is_whole:
            return digest_encoded(
                tuple(column.to_pylist() for column in table.columns) for table in self._tables()
            )
        return digest_rows(row for table in self._tables() for row in self._rows(table))

    def select(self, rows: array[int]) -> ProblemFile:
        """The problems at these positions, which are in ascending order."""
        if self._chosen is not None:
            rows = array("L", (self._chosen[row] for row in rows))
        return ProblemFile(self.path, rows, keeps=self._keeps)

    def write_to(self, target: Path) -> None:
        """Make `target` a file of these problems. If they are all problems of this file, the file
        is linked."""
        if self._chosen is None:
            target.unlink(missing_ok=True)  # it may be a link: never to be written into
            link_file(self.path, target)
            return
        with ProblemWriter(target) as writer:
            writer.names |= dict.fromkeys(self._names)
            writer.fewest = len(self._names) if self._is_whole else 0
            for table in self._tables():
                writer.add_table(table)

    # the file

    def _tables(self, columns: list[str] | None = None) -> Iterator[Any]:
        """The selected rows, group by group, as pyarrow tables."""
        for group, start in enumerate(self._starts[:-1]):
            if self._chosen is None:
                yield self._group(group, columns)
                continue
            first = bisect_left(self._chosen, start)
            last = bisect_left(self._chosen, self._starts[group + 1])
            if first < last:
                inside = [row - start for row in self._chosen[first:last]]
                yield self._group(group, columns).take(inside)

    @functools.cached_property
    def _file(self) -> Any:
        import pyarrow.parquet

        try:
            content = pyarrow.OSFile(os.fsencode(self.path))
            file = pyarrow.parquet.ParquetFile(content, page_checksum_verification=True)
            known = json.loads((file.metadata.metadata or {})[METADATA])
            check_format(self.path, known["format"])
        except FileNotFoundError:
            raise CorruptFileError(f"{self.path} is missing") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CorruptFileError(f"{self.path} is damaged: {error}") from error
        return file

    @functools.cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(json.loads(self._file.metadata.metadata[METADATA])["columns"])

    @functools.cached_property
    def _is_whole(self) -> bool:
        """Whether each row has every column, in the order that the fingerprint has."""
        return bool(json.loads(self._file.metadata.metadata[METADATA]).get("whole"))

    @functools.cached_property
    def _starts(self) -> list[int]:
        """First row of each group, and the number of rows."""
        metadata = self._file.metadata
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        return [0, *accumulate(sizes)]

    def _group_of(self, row: int) -> int:
        return bisect_right(self._starts, row) - 1

    def _group(self, group: int, columns: list[str] | None = None) -> Any:
        try:
            with self._reading:  # steps that overlap draw their problems in threads of their own
                return self._file.read_row_group(group, columns=columns, use_threads=False)
        except (OSError, ValueError) as error:
            raise CorruptFileError(f"{self.path} is damaged: {error}") from error

    def _rows(self, table: Any) -> Iterator[Row]:
        ids, prompts, chats, texts = (column.to_pylist() for column in table.columns)
        names, rows = self._names, json.loads(f"[{','.join(texts)}]")
        for problem_id, prompt, chat, own in zip(ids, prompts, chats, rows, strict=True):
            columns = {name: own.get(name) for name in names}
            yield problem_id, json.loads(prompt) if chat else prompt, columns


def prompts_of(problems: Sequence[Problem]) -> Iterator[Prompt]:
    """The prompts alone, in order."""
    if isinstance(problems, ProblemFile):
        return problems.prompts()
    return (problem.prompt for problem in problems)


def at(problems: Sequence[Problem], positions: Sequence[int]) -> list[Problem]:
    """The problems at these positions, in their order."""
    if isinstance(problems, ProblemFile):
        return problems.at(positions)
    return [problems[each] for each in positions]


def select(problems: Sequence[Problem], rows: array[int]) -> Sequence[Problem]:
    """The problems at these positions, which go up."""
    if isinstance(problems, ProblemFile):
        return problems.select(rows)
    return [problems[row] for row in rows]


def dataset_fingerprint(problems: Sequence[Problem]) -> str:
    """sha256 over ids, prompts and columns, hexadecimal."""
    if isinstance(problems, ProblemFile):
        return problems.fingerprint
    return digest_rows((problem.id, problem.prompt, problem.columns) for problem in problems)


def write_problems(path: Path, problems: Sequence[Problem]) -> None:
    """Write a file of these problems to `path`."""
    if isinstance(problems, ProblemFile):
        problems.write_to(path)
        return
    with ProblemWriter(path) as writer:
        for problem in problems:
            writer.add(problem.id, problem.prompt, problem.columns)
