"""Completions in a file, to be scored without a run.

JSON lines, each an object with

    completion        text, or chat messages where the prompt is a chat
    prompt            text or chat messages (or `data.prompt_column`)
    completion_ids    token ids, where a reward function looks at them; optional
    anything else     columns of the dataset

or a `generations-<shard>.parquet` of a run. Completions of one problem are a group, wherever they
stand in the file. `answers` and `sample_programs` make groups without a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

from pydantic import BaseModel, Field, ValidationError

from mortal_steps.data.problem_files import encode_json
from mortal_steps.data.problems import TAKEN_BY_TRL
from mortal_steps.data.values import check_prompt
from mortal_steps.errors import DataError
from mortal_steps.store import RunStore
from mortal_steps.types import Completion, GeneratedGroup, GeneratedShard, PolicyVersion, Problem

SAMPLE_TASK = "Write a function add(a, b) that returns the sum of two numbers."
SAMPLE_TESTS = ("assert add(1, 2) == 3", "assert add(-1, 1) == 0")
SAMPLE_PROGRAMS = (
    "```python\ndef add(a, b):\n    return a + b\n```",
    "```python\ndef add(a, b):\n    return a - b\n```",
)
"""One right and one wrong program."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenGroup:
    """The completions of one problem, and where they stand in the file."""

    group: GeneratedGroup
    places: Sequence[str]
    """Of each completion, such as `line 3`."""


class _Message(BaseModel, extra="allow", strict=True):
    role: str
    content: str


class _Row(BaseModel, extra="allow", strict=True):
    """A line; what it has besides are the prompt and the columns."""

    completion: str | Annotated[list[_Message], Field(min_length=1)]
    completion_ids: list[Annotated[int, Field(ge=0)]] = []


def read_completions(path: Path, prompt_column: str) -> list[GivenGroup]:
    """Return the groups in the order of their first completions.

    Raises `DataError` that names the line and the field, and `CorruptFileError` for a shard that is
    damaged.
    """
    if path.suffix == ".parquet":
        return _of_a_run(path)
    rows = list(_rows(path, prompt_column))
    if not rows:
        raise DataError(
            f"{path} holds no completions; write one JSON object a line, such as "
            '{"prompt": "2+2=", "completion": "4", "answer": "4"}'
        )
    if len({isinstance(problem.prompt, str) for _, problem, _ in rows}) > 1:
        raise DataError(f"{path}: prompts are both text and chat messages; use one kind")
    names = dict.fromkeys(name for _, problem, _ in rows for name in problem.columns)
    groups: dict[str, list[tuple[int, Problem, Completion]]] = {}
    for row in rows:
        groups.setdefault(encode_json([row[1].prompt, row[1].columns]), []).append(row)
    return [_group(members, list(names)) for members in groups.values()]


def _of_a_run(path: Path) -> list[GivenGroup]:
    found = RunStore(path.parent).find_record(path.name, GeneratedShard)
    if found is None:
        raise DataError(f"no such file: {path}")
    return [
        GivenGroup(
            group=group,
            places=[f"{group.problem.id}[{number}]" for number in range(len(group.completions))],
        )
        for group in found[1].groups
    ]


def _rows(path: Path, prompt_column: str) -> Iterator[tuple[int, Problem, Completion]]:
    """Yield the number, the problem and the completion of each line that is not empty."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise DataError(f"no such file: {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as text: {error}") from None
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        where = f"{path}, line {number}"
        try:
            row = _Row.model_validate(json.loads(text, parse_constant=_refuse_constant))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise DataError(f"{where}, field {field!r}: {first['msg']}") from None
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where} is no JSON ({error}); write one object a line") from None
        problem = _problem(row, number, where, prompt_column)
        yield number, problem, _completion(row, problem, where)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _problem(row: _Row, number: int, where: str, prompt_column: str) -> Problem:
    columns: dict[str, Any] = dict(row.model_extra or {})
    field = prompt_column if prompt_column in columns else "prompt"
    if field not in columns:
        raise DataError(f"{where} has no prompt; add a field {prompt_column!r}")
    prompt = columns.pop(field)
    check_prompt(prompt, f"{where}, field {field!r}")
    for name in columns:
        if name in TAKEN_BY_TRL:
            raise DataError(
                f"{where}, field {name!r}: every reward function is given an argument of that "
                "name; rename or remove it"
            )
    return Problem(id=f"line-{number}", prompt=prompt, columns=columns)


def _completion(row: _Row, problem: Problem, where: str) -> Completion:
    messages = () if isinstance(row.completion, str) else tuple(row.completion)
    if messages and isinstance(problem.prompt, str):
        raise DataError(
            f"{where}, field 'completion': chat messages answer a prompt that is text; write the "
            "completion as text, or the prompt as messages"
        )
    replies = (each.content for each in messages if each.role == "assistant")
    return Completion(
        token_ids=row.completion_ids,
        logprobs=[0.0] * len(row.completion_ids),
        text=row.completion if isinstance(row.completion, str) else "".join(replies),
        finish_reason="stop",
        seed=0,
        policy_version=PolicyVersion(0),
        messages=tuple(each.model_dump() for each in messages),
    )


def _group(rows: Sequence[tuple[int, Problem, Completion]], names: Sequence[str]) -> GivenGroup:
    """Return the group; a column that other rows have and these lack is None, as in a dataset."""
    problem = rows[0][1]
    columns = {name: problem.columns.get(name) for name in names}
    group = GeneratedGroup(
        problem=Problem(id=problem.id, prompt=problem.prompt, columns=columns),
        prompt_ids=[],
        completions=[completion for _, _, completion in rows],
    )
    return GivenGroup(group=group, places=[f"line {number}" for number, _, _ in rows])


def sample_programs() -> list[GivenGroup]:
    """One right and one wrong program, for the sandbox."""
    problem = Problem(id="sample", prompt=SAMPLE_TASK, columns={"testcase": list(SAMPLE_TESTS)})
    return [answers(problem, SAMPLE_PROGRAMS, "program")]


def answers(problem: Problem, texts: Sequence[str], called: str) -> GivenGroup:
    """Return texts as completions of a problem; messages call each `called` and its number."""
    completions = [
        Completion(
            token_ids=(),
            logprobs=(),
            text=text,
            finish_reason="stop",
            seed=0,
            policy_version=PolicyVersion(0),
        )
        for text in texts
    ]
    places = [f"{called} {number}" for number, _ in enumerate(texts, 1)]
    group = GeneratedGroup(problem=problem, prompt_ids=[], completions=completions)
    return GivenGroup(group=group, places=places)
