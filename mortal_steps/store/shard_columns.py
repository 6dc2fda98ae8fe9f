"""Shards as columns: a row per completion, and one for a group without any.

    generations-<shard>.parquet                      rewards-<shard>.parquet

    step shard group generation                      step shard group generation
    problem_id prompt prompt_messages* columns*      rewards/<function>, one column each
    prompt_ids own_prompt_ids                        extra/<column>, what functions logged
    completion token_ids logprobs turns
    finish_reason seed policy_version
    message* messages*                               * JSON; of a chat, prompt_messages

The rows of both files belong together by step, shard, group and generation.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import pyarrow

from mortal_steps.errors import CorruptFileError, StoreError
from mortal_steps.store import columns
from mortal_steps.store.arrays import array_of
from mortal_steps.store.columns import (
    LOGPROBS,
    TOKEN_IDS,
    dump_json,
    json_column,
    json_values,
    lists_column,
    lists_of,
    plain_column,
    plain_values,
)
from mortal_steps.store.seal import Seal
from mortal_steps.types import (
    Completion,
    GeneratedGroup,
    GeneratedShard,
    Problem,
    Prompt,
    RewardedShard,
    RewardFailure,
    Turn,
)

T = TypeVar("T")
Item = TypeVar("Item")

Table = Mapping[str, pyarrow.Array]

OWN_PROMPT_IDS = pyarrow.list_(pyarrow.int32())
"""Null where the prompt is the group's."""
TURNS = pyarrow.list_(
    pyarrow.struct(
        [
            ("start", pyarrow.int32()),
            ("stop", pyarrow.int32()),
            ("seed", pyarrow.int64()),
            ("finish_reason", pyarrow.string()),
            ("round", pyarrow.int32()),
        ]
    )
)
PLACES = ("step", "shard", "group", "generation")
OF_GROUPS = ("problem_id", "prompt", "prompt_messages", "columns")
"""Columns that have the same value in each row of a group."""
REWARDS, EXTRA = "rewards/", "extra/"
"""What the columns of scores and of logged values begin with."""


def pack(path: Path, body: Any, kind: type[Any]) -> tuple[str, bytearray]:
    """Digest of the content, and the file to write there; raises `StoreError` for what columns
    cannot hold."""
    to_columns, _ = _FORMS[kind]
    try:
        return columns.encode(kind.__name__, *to_columns(body))
    except (ValueError, TypeError, OverflowError, struct.error) as error:
        raise StoreError(f"{path} cannot hold this {kind.__name__}: {error}") from error


def unpack(path: Path, content: bytes, seal: Seal, kind: type[T]) -> T:
    """The content of a file; raises `CorruptFileError` if it is of another kind."""
    if seal.kind != kind.__name__:
        raise CorruptFileError(f"{path} is no {kind.__name__} but a {seal.kind}")
    _, from_columns = _FORMS[kind]
    table = columns.Columns(path, content)
    body: T = from_columns(table.header, table)
    return body


# generations


def _from_generated(shard: GeneratedShard) -> tuple[Any, Table]:
    rows = _rows([group.completions for group in shard.groups])
    made: list[Completion | None] = [completion for _, _, completion in rows]

    def of_groups(value: Callable[[GeneratedGroup], Any]) -> list[Any]:
        values = [value(group) for group in shard.groups]
        return [values[group] for group, _, _ in rows]

    text = pyarrow.string()
    table = _places(shard, rows) | {
        "problem_id": array_of(of_groups(lambda group: group.problem.id), text),
        "prompt": array_of(of_groups(lambda group: _as_text(group.problem.prompt)), text),
        "prompt_messages": array_of(of_groups(lambda g: _as_messages(g.problem.prompt)), text),
        "columns": array_of(of_groups(lambda g: dump_json(dict(g.problem.columns))), text),
        "prompt_ids": lists_column(of_groups(lambda group: group.prompt_ids), TOKEN_IDS),
        "own_prompt_ids": pyarrow.array([c and c.prompt_ids for c in made], OWN_PROMPT_IDS),
        "completion": array_of([c and c.text for c in made], text),
        "token_ids": lists_column([c.token_ids if c else () for c in made], TOKEN_IDS),
        "logprobs": lists_column([c.logprobs if c else () for c in made], LOGPROBS),
        "turns": pyarrow.array([_as_plain(c.turns) if c else [] for c in made], TURNS),
        "finish_reason": array_of([c and c.finish_reason for c in made], text),
        "seed": array_of([c and c.seed for c in made], pyarrow.int64()),
        "policy_version": array_of([c and c.policy_version for c in made], pyarrow.int64()),
        "message": json_column([c and c.message and dict(c.message) for c in made]),
        "messages": json_column([c and ([dict(m) for m in c.messages] or None) for c in made]),
    }
    return {"policy_version": shard.policy_version, **_place(shard)}, table


def _to_generated(header: Any, table: Table) -> GeneratedShard:
    grouped = _grouped(table)
    firsts = [first for first, _ in grouped]
    places = array_of(firsts, pyarrow.int64())
    said = {name: table[name].take(places).to_pylist() for name in OF_GROUPS}
    prompts_ids = lists_of(table["prompt_ids"], firsts)
    made = _completions(table)
    groups = []
    for group, (_, rows) in enumerate(grouped):
        text, messages = said["prompt"][group], said["prompt_messages"][group]
        problem = Problem(
            id=said["problem_id"][group],
            prompt=json.loads(messages) if text is None else text,
            columns=json.loads(said["columns"][group]),
        )
        groups.append(
            GeneratedGroup(
                problem=problem,
                prompt_ids=prompts_ids[group],
                completions=[_completion(made, row) for row in rows],
            )
        )
    return GeneratedShard(groups=groups, **header)


def _completions(table: Table) -> dict[str, Sequence[Any]]:
    """The columns about completions, one row each."""
    values: dict[str, Sequence[Any]] = {}
    for name in table.keys() - {*PLACES, *OF_GROUPS, "prompt_ids"}:
        if name in ("token_ids", "logprobs"):
            values[name] = lists_of(table[name])
        elif name in ("message", "messages"):
            values[name] = json_values(table[name])
        else:
            values[name] = table[name].to_pylist()
    return values


def _completion(values: Mapping[str, Sequence[Any]], row: int) -> Completion:
    return Completion(
        token_ids=values["token_ids"][row],
        logprobs=values["logprobs"][row],
        text=values["completion"][row],
        finish_reason=values["finish_reason"][row],
        seed=values["seed"][row],
        policy_version=values["policy_version"][row],
        message=values["message"][row],
        turns=tuple([Turn(**turn) for turn in values["turns"][row]]),
        messages=tuple(values["messages"][row] or ()),
        prompt_ids=values["own_prompt_ids"][row],
    )


def _as_text(prompt: Prompt) -> str | None:
    return prompt if isinstance(prompt, str) else None


def _as_messages(prompt: Prompt) -> str | None:
    return None if isinstance(prompt, str) else dump_json(prompt)


def _as_plain(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    return [asdict(turn) for turn in turns]


# scores


def _from_rewarded(shard: RewardedShard) -> tuple[Any, Table]:
    rows = _rows(shard.rewards)
    scores = [scored for _, _, scored in rows if scored is not None]
    names = list(scores[0]) if scores else []
    if any(scored.keys() != set(names) for scored in scores):
        raise ValueError("not every completion is scored by the same functions")
    table = _places(shard, rows)
    for name in names:
        values = [None if scored is None else scored[name] for _, _, scored in rows]
        table[REWARDS + name] = array_of(values, pyarrow.float64())
    kinds = {}
    for name, logged in shard.extra.items():
        if len(logged) != len(scores):
            raise ValueError(f"{name!r} has {len(logged)} values for {len(scores)} completions")
        of_each = iter(logged)
        values = [None if scored is None else next(of_each) for _, _, scored in rows]
        table[EXTRA + name], kinds[name] = plain_column(values)
    header = {
        **_place(shard),
        "generation_sha256": shard.generation_sha256,
        "metrics": dict(shard.metrics),
        "failures": [asdict(failure) for failure in shard.failures],
        "failed_calls": dict(shard.failed_calls),
        "extra": kinds,
    }
    return header, table


def _to_rewarded(header: Any, table: Table) -> RewardedShard:
    grouped = _grouped(table)
    scores = {
        name.removeprefix(REWARDS): table[name].to_pylist()
        for name in table
        if name.startswith(REWARDS)
    }
    extra = {}
    for name, kind in header.pop("extra").items():
        values = plain_values(table[EXTRA + name], kind)
        extra[name] = [values[row] for _, rows in grouped for row in rows]
    failures = tuple(RewardFailure(**failure) for failure in header.pop("failures"))
    rewards = [
        [{name: values[row] for name, values in scores.items()} for row in rows]
        for _, rows in grouped
    ]
    return RewardedShard(rewards=rewards, extra=extra, failures=failures, **header)


# rows


def _rows(groups: Sequence[Sequence[Item]]) -> list[tuple[int, int | None, Item | None]]:
    """Group, generation and item of each row; a group without items has one row."""
    rows: list[tuple[int, int | None, Item | None]] = []
    for group, items in enumerate(groups):
        rows.extend((group, generation, item) for generation, item in enumerate(items))
        if not items:
            rows.append((group, None, None))
    return rows


def _place(shard: GeneratedShard | RewardedShard) -> dict[str, int]:
    return {"step": shard.step, "shard": shard.shard}


def _places(
    shard: GeneratedShard | RewardedShard, rows: Sequence[tuple[int, int | None, Any]]
) -> dict[str, pyarrow.Array]:
    """The columns with which both files begin."""
    return {
        "step": array_of([shard.step] * len(rows), pyarrow.int64()),
        "shard": array_of([shard.shard] * len(rows), pyarrow.int32()),
        "group": array_of([group for group, _, _ in rows], pyarrow.int32()),
        "generation": array_of([generation for _, generation, _ in rows], pyarrow.int32()),
    }


def _grouped(table: Table) -> list[tuple[int, list[int]]]:
    """Of each group, its first row, and the rows that are completions."""
    generations = table["generation"].to_pylist()
    grouped: dict[int, tuple[int, list[int]]] = {}
    for row, group in enumerate(table["group"].to_pylist()):
        _, completions = grouped.setdefault(group, (row, []))
        if generations[row] is not None:
            completions.append(row)
    return list(grouped.values())


_FORMS: Mapping[Any, tuple[Callable[[Any], tuple[Any, Table]], Callable[[Any, Table], Any]]] = {
    GeneratedShard: (_from_generated, _to_generated),
    RewardedShard: (_from_rewarded, _to_rewarded),
}
