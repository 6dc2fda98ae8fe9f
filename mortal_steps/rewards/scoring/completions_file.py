"""Completions in a file, to be scored without a run.

JSON lines, each an object with

    completion        text, or chat messages where the prompt is a chat
    prompt            text or chat messages (or `data.prompt_column`); or instead of it
    problem_id        name of a problem of the configuration's dataset, such as `train-7`
    completion_ids    token ids, where a reward function looks at them; optional
    anything else     columns of the dataset

or a `generations-<shard>.parquet` of a run. Completions of one problem are a group, wherever they
stand in the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from mortal_steps.data.problem_files import encode_json
from mortal_steps.data.problems import TAKEN_BY_TRL
from mortal_steps.data.values import check_prompt
from mortal_steps.errors import DataError
from mortal_steps.store import RunStore
from mortal_steps.types import Completion, GeneratedGroup, GeneratedShard, PolicyVersion, Problem

OWN_FIELDS = ("completion", "completion_ids", "problem_id")
"""Of a row, those that are no columns of the dataset."""

SHOWN = 60
"""Characters of a value in an error message."""

Dataset = Callable[[], Mapping[str, Problem]]
"""The problems of the configuration's dataset by their ids; read where a row asks for one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenGroup:
    """The completions of one problem, and their places in the file."""

    group: GeneratedGroup
    places: Sequence[str]
    """Of each completion, such as `line 3`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    line: int
    problem: Problem
    named: bool
    """Whether the row has a `problem_id`."""
    completion: Completion


def read_completions(path: Path, prompt_column: str, dataset: Dataset) -> list[GivenGroup]:
    """The groups in the order of their first completions.

    Raises `DataError` that names the line, the field and the remedy, and `CorruptFileError` for a
    shard that is damaged.
    """
    if path.suffix == ".parquet":
        return _of_a_run(path)
    rows = [_row(row, line, path, prompt_column, dataset) for line, row in _objects(path)]
    if not rows:
        raise DataError(
            f"{path} holds no completions; write one JSON object a line, such as "
            '{"prompt": "2+2=", "completion": "4", "answer": "4"}'
        )
    _check_alike(rows, path)
    names = dict.fromkeys(name for row in rows for name in row.problem.columns)
    groups: dict[str, list[_Row]] = {}
    for row in rows:
        groups.setdefault(_key(row, groups, path), []).append(row)
    return [_group(members, names) for members in groups.values()]


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


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and content of each line that is not empty."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise DataError(f"no such file: {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as text: {error}") from None
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        place = f"{path}, line {number}"
        try:
            row = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{place} is not JSON ({error}); write one object a line, without line breaks in it"
            ) from None
        if not isinstance(row, dict):
            raise DataError(f"{place}: {_shown(row)} is no JSON object; write {{...}}")
        yield number, row


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _row(row: dict[str, Any], line: int, path: Path, prompt_column: str, dataset: Dataset) -> _Row:
    place = f"{path}, line {line}"
    prompt_field = prompt_column if prompt_column in row else "prompt"
    columns = {name: row[name] for name in row if name not in (*OWN_FIELDS, prompt_field)}
    for name in columns:
        if name in TAKEN_BY_TRL:
            raise DataError(
                f"{place}, field {name!r}: every reward function is given an argument of that "
                "name; rename or remove it"
            )
    named = row.get("problem_id")
    if named is not None and not isinstance(named, str):
        raise DataError(f"{place}, field 'problem_id': {_shown(named)} is no text")
    if prompt_field in row:
        check_prompt(row[prompt_field], f"{place}, field {prompt_field!r}")
        problem = Problem(id=named or f"line-{line}", prompt=row[prompt_field], columns=columns)
    else:
        problem = _known(named, columns, place, prompt_column, dataset)
    return _Row(
        line=line,
        problem=problem,
        named=named is not None,
        completion=_completion(row, problem, place),
    )


def _known(
    named: str | None,
    columns: Mapping[str, Any],
    place: str,
    prompt_column: str,
    dataset: Dataset,
) -> Problem:
    """The problem of the dataset; columns in the row replace its own."""
    if named is None:
        fields = " or ".join(dict.fromkeys((repr(prompt_column), "'prompt'")))
        raise DataError(
            f"{place} has no prompt; add a field {fields}, or 'problem_id', which names a problem "
            "of the configuration's dataset"
        )
    found = dataset().get(named)
    if found is None:
        raise DataError(
            f"{place}, field 'problem_id': the configuration's dataset has no problem {named!r}; "
            f"its problems are {_ends(list(dataset()))}. Correct it, or give the row a 'prompt'"
        )
    return replace(found, columns={**found.columns, **columns})


def _completion(row: Mapping[str, Any], problem: Problem, place: str) -> Completion:
    if "completion" not in row:
        raise DataError(f"{place} has no field 'completion'; add the text to score")
    said = row["completion"]
    messages: tuple[dict[str, Any], ...] = ()
    if not isinstance(said, str):
        messages = _messages(said, f"{place}, field 'completion'")
        if isinstance(problem.prompt, str):
            raise DataError(
                f"{place}, field 'completion': chat messages answer a prompt that is text; write "
                "the completion as text, or the prompt as messages"
            )
        said = "".join(str(each["content"]) for each in messages if each["role"] == "assistant")
    ids = row.get("completion_ids", [])
    if not (isinstance(ids, list) and all(type(each) is int and each >= 0 for each in ids)):
        raise DataError(
            f"{place}, field 'completion_ids': {_shown(ids)} is no list of token ids; correct it, "
            "or leave it out"
        )
    return Completion(
        token_ids=ids,
        logprobs=[0.0] * len(ids),
        text=said,
        finish_reason="stop",
        seed=0,
        policy_version=PolicyVersion(0),
        messages=messages,
    )


def _messages(said: Any, place: str) -> tuple[dict[str, Any], ...]:
    well_formed = isinstance(said, list) and all(
        isinstance(each, dict)
        and isinstance(each.get("role"), str)
        and isinstance(each.get("content"), str)
        for each in said
    )
    if not well_formed or not said:
        raise DataError(
            f"{place}: {_shown(said)} is neither text nor a list of chat messages such as "
            '[{"role": "assistant", "content": "..."}]'
        )
    return tuple(said)


def _check_alike(rows: Sequence[_Row], path: Path) -> None:
    """Raise `DataError` unless all prompts are text or all are chats, as in a dataset."""
    first = rows[0]
    for row in rows:
        if isinstance(row.problem.prompt, str) != isinstance(first.problem.prompt, str):
            raise DataError(
                f"{path}, lines {first.line} and {row.line}: prompts are both text and chat "
                "messages; use one kind for all rows"
            )


def _key(row: _Row, groups: Mapping[str, Sequence[_Row]], path: Path) -> str:
    """Equal for completions of the same problem."""
    if not row.named:
        return encode_json([row.problem.prompt, row.problem.columns])
    first = groups.get(row.problem.id, [row])[0]
    if (first.problem.prompt, first.problem.columns) != (row.problem.prompt, row.problem.columns):
        raise DataError(
            f"{path}, lines {first.line} and {row.line}: both have the problem_id "
            f"{row.problem.id!r}, but another prompt or other columns; give one of them another id"
        )
    return row.problem.id


def _group(rows: Sequence[_Row], names: Mapping[str, None]) -> GivenGroup:
    """A column that other rows have and these lack is None, as in a dataset."""
    problem = rows[0].problem
    columns = {name: problem.columns.get(name) for name in names}
    group = GeneratedGroup(
        problem=replace(problem, columns=columns),
        prompt_ids=[],
        completions=[row.completion for row in rows],
    )
    return GivenGroup(group=group, places=[f"line {row.line}" for row in rows])


def _ends(ids: Sequence[str]) -> str:
    return ids[0] if len(ids) == 1 else f"{ids[0]} to {ids[-1]}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
