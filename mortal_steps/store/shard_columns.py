"""Shards as columns of a Parquet file that proves itself (seal.py): a row per completion.

    generations-<shard>.parquet                      rewards-<shard>.parquet

    step shard group generation                      step shard group generation
    problem_id prompt prompt_messages* columns*      rewards/<function>, one column each
    prompt_ids                                       extra/<column>, what functions logged
    a column for each field of `Completion`          teacher_logprobs, if teachers were asked
                                                     * JSON; of a chat, prompt_messages

The rows of both files belong together by step, shard, group and generation. What belongs to the
whole shard is the file's header (columns.py).
"""

import dataclasses
import json
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

import pyarrow

from mortal_steps.errors import CorruptFileError, StoreError
from mortal_steps.store.columns import (
    FLOATS,
    INTEGERS,
    column,
    plain_column,
    read_columns,
    values_of,
    write_columns,
)
from mortal_steps.store.json_record import FORMAT, check_format
from mortal_steps.store.seal import close
from mortal_steps.types import (
    Completion,
    Episode,
    GeneratedGroup,
    GeneratedShard,
    Problem,
    RewardedShard,
    RewardFailure,
    Turn,
)

T = TypeVar("T")
Item = TypeVar("Item")

RENAMED = {"text": "completion", "prompt_ids": "own_prompt_ids", "prompt": "own_prompt"}
"""Columns of `Completion` that have another name than their field."""
OPTIONAL_FIELDS = frozenset({"prompt", "episode", "differing_answer"})
"""Fields of `Completion` that have a column only where one of the shard's completions has them:
shards without are, byte for byte, what they were before these fields existed."""
REWARDS, EXTRA = "rewards/", "extra/"
"""What the columns of scores and of logged values begin with."""
TEACHER = "teacher_logprobs"
"""The column of what teachers said: shards of other runs are, byte for byte, without it."""


def pack(path: Path, body: Any, kind: type[Any]) -> tuple[str, bytearray]:
    """Return digest and content; raises `StoreError` for what columns cannot hold."""
    to_columns, _ = _FORMS[kind]
    try:
        header, columns = to_columns(body)
        described = {"format": FORMAT, "kind": kind.__name__, **header}
        content = write_columns(described, pyarrow.table(columns))
    except (ValueError, TypeError, OverflowError) as error:
        raise StoreError(f"{path} cannot hold this {kind.__name__}: {error}") from error
    return close(content), content


def unpack(path: Path, content: bytes, kind: type[T]) -> T:
    """Return the content of a file whose seal was checked; raises `CorruptFileError` if it is of
    another kind, or this version of pyarrow cannot read it."""
    header, table = read_columns(path, content)
    check_format(path, header.pop("format"))
    found = header.pop("kind")
    if found != kind.__name__:
        raise CorruptFileError(f"{path} is no {kind.__name__} but a {found}")
    _, from_columns = _FORMS[kind]
    body: T = from_columns(header, table)
    return body


# generations


def _from_generated(shard: GeneratedShard) -> tuple[Any, dict[str, pyarrow.Array]]:
    rows = _rows([[(group, made) for made in group.completions] for group in shard.groups])
    groups, completions = [group for _, _, (group, _) in rows], [made for _, _, (_, made) in rows]
    prompts = [group.problem.prompt for group in groups]
    texts = [prompt if isinstance(prompt, str) else None for prompt in prompts]
    messages = [None if isinstance(prompt, str) else prompt for prompt in prompts]
    columns = _places(shard, rows) | {
        "problem_id": pyarrow.array([group.problem.id for group in groups], pyarrow.string()),
        "prompt": pyarrow.array(texts, pyarrow.string()),
        "prompt_messages": column(messages, None),
        "columns": column([group.problem.columns for group in groups], None),
        "prompt_ids": column([group.prompt_ids for group in groups], INTEGERS),
    }
    for field in dataclasses.fields(Completion):
        values = [getattr(made, field.name) for made in completions]
        some = [None if value == field.default else value for value in values]
        if field.name in OPTIONAL_FIELDS and not any(value is not None for value in some):
            continue
        name = RENAMED.get(field.name, field.name)
        columns[name] = column(some, _arrow_type(HINTS[field.name]))
    return _header(shard, "groups"), columns


def _to_generated(header: Any, table: pyarrow.Table) -> GeneratedShard:
    columns = {name: values_of(table[name]) for name in table.column_names}
    fields = _fields(columns)
    groups = []
    for rows in _grouped(columns["generation"]):
        first = rows[0]
        text, messages = columns["prompt"][first], columns["prompt_messages"][first]
        problem = Problem(
            id=columns["problem_id"][first],
            prompt=json.loads(messages) if text is None else text,
            columns=json.loads(columns["columns"][first]),
        )
        groups.append(
            GeneratedGroup(
                problem=problem,
                prompt_ids=columns["prompt_ids"][first],
                completions=[_completion(fields, row) for row in rows],
            )
        )
    return GeneratedShard(groups=groups, **header)


def _fields(columns: Mapping[str, Sequence[Any]]) -> Mapping[str, Sequence[Any]]:
    """Return the values of each field of `Completion` that has a column."""
    fields = {}
    for name, hint in HINTS.items():
        values = columns.get(RENAMED.get(name, name))
        if values is not None and _arrow_type(hint) is None:
            read = READERS.get(name, lambda held: held)
            values = [None if each is None else read(json.loads(each)) for each in values]
        if values is not None:
            fields[name] = values
    return fields


def _completion(fields: Mapping[str, Sequence[Any]], row: int) -> Completion:
    """Return the completion of a row; a null stands for the default."""
    given = {name: values[row] for name, values in fields.items()}
    return Completion(**{name: value for name, value in given.items() if value is not None})


READERS: Mapping[str, Callable[[Any], Any]] = {
    "turns": lambda turns: tuple(Turn(**turn) for turn in turns),
    "messages": tuple,
    "episode": lambda episode: Episode(**episode),
}
"""Make of JSON what a field of `Completion` has, where that is something else."""

HINTS: Mapping[str, Any] = get_type_hints(Completion)


def _arrow_type(hint: Any) -> pyarrow.DataType | None:
    """Return the type of the column for a field of this type; None: it holds JSON."""
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (part for part in get_args(hint) if part is not type(None))
    if get_origin(hint) is Literal:
        return pyarrow.string()
    if isinstance(hint, NewType):
        hint = hint.__supertype__
    return COLUMN_TYPES.get(hint)


COLUMN_TYPES: Mapping[Any, pyarrow.DataType] = {
    str: pyarrow.string(),
    int: pyarrow.int64(),
    float: pyarrow.float64(),
    Sequence[int]: INTEGERS,
    Sequence[float]: FLOATS,
}


# scores


def _from_rewarded(shard: RewardedShard) -> tuple[Any, dict[str, pyarrow.Array]]:
    rows = _rows(shard.rewards)
    scores = [scored for _, _, scored in rows]
    names = list(scores[0]) if scores else []
    if any(scored.keys() != set(names) for scored in scores):
        raise ValueError("not every completion is scored by the same functions")
    columns = _places(shard, rows)
    for name in names:
        columns[REWARDS + name] = pyarrow.array([each[name] for each in scores], pyarrow.float64())
    in_json = []
    for name, logged in shard.extra.items():
        if len(logged) != len(scores):
            raise ValueError(f"{name!r} has {len(logged)} values for {len(scores)} completions")
        own = plain_column(logged)
        if own is None:
            in_json.append(name)
        columns[EXTRA + name] = column(logged, None) if own is None else own
    if shard.teacher_logprobs:
        if len(shard.teacher_logprobs) != len(scores):
            raise ValueError(
                f"teachers said {len(shard.teacher_logprobs)} things of {len(scores)} completions"
            )
        columns[TEACHER] = pyarrow.array(shard.teacher_logprobs, pyarrow.binary())
    return {**_header(shard, "rewards", "extra", TEACHER), "in_json": in_json}, columns


def _to_rewarded(header: Any, table: pyarrow.Table) -> RewardedShard:
    in_json = header.pop("in_json")
    columns = {name: table[name].to_pylist() for name in table.column_names}

    def beginning_with(prefix: str) -> dict[str, list[Any]]:
        return {n.removeprefix(prefix): v for n, v in columns.items() if n.startswith(prefix)}

    scores, extra = beginning_with(REWARDS), beginning_with(EXTRA)
    for name in in_json:
        extra[name] = [None if text is None else json.loads(text) for text in extra[name]]
    rewards = [
        [{name: values[row] for name, values in scores.items()} for row in rows]
        for rows in _grouped(columns["generation"])
    ]
    failures = tuple(RewardFailure(**failure) for failure in header.pop("failures"))
    said = columns.get(TEACHER, ())
    return RewardedShard(
        rewards=rewards, extra=extra, teacher_logprobs=said, failures=failures, **header
    )


# rows and columns


def _rows(groups: Sequence[Sequence[Item]]) -> list[tuple[int, int, Item]]:
    if not all(groups):
        raise ValueError("a group has no completions")
    return [
        (group, generation, item)
        for group, items in enumerate(groups)
        for generation, item in enumerate(items)
    ]


def _grouped(generations: Sequence[int]) -> list[list[int]]:
    groups: list[list[int]] = []
    for row, generation in enumerate(generations):
        if generation == 0:
            groups.append([])
        groups[-1].append(row)
    return groups


def _places(
    shard: GeneratedShard | RewardedShard, rows: Sequence[tuple[int, int, Any]]
) -> dict[str, pyarrow.Array]:
    return {
        "step": pyarrow.array([shard.step] * len(rows), pyarrow.int64()),
        "shard": pyarrow.array([shard.shard] * len(rows), pyarrow.int32()),
        "group": pyarrow.array([group for group, _, _ in rows], pyarrow.int32()),
        "generation": pyarrow.array([generation for _, generation, _ in rows], pyarrow.int32()),
    }


def _header(shard: GeneratedShard | RewardedShard, *but: str) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(shard) if field.name not in but]
    return {name: getattr(shard, name) for name in names}


Writer = Callable[[Any], tuple[Any, dict[str, pyarrow.Array]]]
Reader = Callable[[Any, pyarrow.Table], Any]
_FORMS: Mapping[Any, tuple[Writer, Reader]] = {
    GeneratedShard: (_from_generated, _to_generated),
    RewardedShard: (_from_rewarded, _to_rewarded),
}
