"""Completions in a file, to be scored without a run.

A file of rows as a dataset may be, such as JSON lines, each an object with

    completion        text, or chat messages where the prompt is a chat
    prompt            text or chat messages (or `data.prompt_column`)
    completion_ids    token ids, where a reward function looks at them; optional
    anything else     columns of the dataset

or a `generations-<shard>.parquet` of a run. Completions of one problem are a group, wherever they
stand in the file. `answers` and `sample_programs` make groups without a file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from mortal_steps.data.problem_files import encode_json
from mortal_steps.data.rows import problems_of
from mortal_steps.data.sources.files import read_file
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
    """Of each completion, such as `row 3`."""


class _Message(BaseModel, extra="allow", strict=True):
    role: str
    content: str


class _Answer(BaseModel, strict=True):
    """What a row holds besides the problem."""

    completion: str | Annotated[list[_Message], Field(min_length=1)]
    completion_ids: list[Annotated[int, Field(ge=0)]] | None = None


def read_completions(path: Path, prompt_column: str) -> list[GivenGroup]:
    """Return groups in the order of their first completions. Raises `DataError` that names row and
    field, `CorruptFileError` for a damaged shard."""
    if path.match("generations-*.parquet"):
        return _of_a_run(path)
    rows = [dict(row) for row in read_file(path, str(path))]
    answers = [
        {name: row.pop(name) for name in _Answer.model_fields if name in row} for row in rows
    ]
    if not any(prompt_column in row for row in rows):
        prompt_column = "prompt"
    problems = list(problems_of(iter(rows), prompt_column, "row", str(path)))
    completions = [
        _completion(answer, problem, f"{path}, row {number}")
        for number, (problem, answer) in enumerate(zip(problems, answers, strict=True))
    ]
    names = dict.fromkeys(name for problem in problems for name in problem.columns)
    of_one_problem: dict[str, list[int]] = {}
    for number, problem in enumerate(problems):
        key = encode_json([problem.prompt, problem.columns])
        of_one_problem.setdefault(key, []).append(number)
    return [
        GivenGroup(
            group=GeneratedGroup(
                problem=replace(
                    problems[numbers[0]],
                    columns={name: problems[numbers[0]].columns.get(name) for name in names},
                ),
                prompt_ids=[],
                completions=[completions[number] for number in numbers],
            ),
            places=[f"row {number}" for number in numbers],
        )
        for numbers in of_one_problem.values()
    ]


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


def _completion(given: Mapping[str, Any], problem: Problem, where: str) -> Completion:
    try:
        answer = _Answer.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise DataError(f"{where}, field {field!r}: {first['msg']}") from None
    messages = () if isinstance(answer.completion, str) else tuple(answer.completion)
    if messages and isinstance(problem.prompt, str):
        raise DataError(
            f"{where}, field 'completion': chat messages answer a prompt that is text; write the "
            "completion as text, or the prompt as messages"
        )
    replies = (each.content for each in messages if each.role == "assistant")
    token_ids = answer.completion_ids or []
    return Completion(
        token_ids=token_ids,
        logprobs=[0.0] * len(token_ids),
        text=answer.completion if isinstance(answer.completion, str) else "".join(replies),
        finish_reason="stop",
        seed=0,
        policy_version=PolicyVersion(0),
        messages=tuple(each.model_dump() for each in messages),
    )


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
