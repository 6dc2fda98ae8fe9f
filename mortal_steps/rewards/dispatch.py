"""Call reward functions as TRL's GRPOTrainer does, and take nothing for a score that is none.

A function that raises, or returns anything but numbers and None, stops the call with a
`RewardError`; a failure is never scored 0.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import threading
import traceback
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mortal_steps.errors import MortalError, RewardError
from mortal_steps.rewards.base import RewardFunction, TrainerState
from mortal_steps.types import GeneratedShard

FLOAT32_MAX = 3.4028234e38
"""Rewards are single precision in the loss; what is larger would be infinite there."""

NOT_FROM_COLUMNS = ("prompt", "completion", "completion_ids")
"""Columns that TRL leaves out, having arguments of its own for them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """What the functions said about a shard."""

    rewards: Sequence[Sequence[Mapping[str, float | None]]]
    """Per group, per completion: score of each function; None where it abstained."""
    metrics: Mapping[str, float]
    """Mean of each metric logged."""
    extra: Mapping[str, Sequence[Any]]
    """Columns logged beside the completions."""


def score(
    functions: Sequence[RewardFunction],
    names: Sequence[str],
    shard: GeneratedShard,
    trainer_state: TrainerState,
) -> Scores:
    """Call each function once on all completions of the shard: plain ones in turn, then async ones
    together. Raises `RewardError`.
    """
    log = _Log()
    arguments = _arguments(shard, trainer_state, log)
    calls = dict(zip(names, functions, strict=True))
    outputs = {
        name: _call(name, function, arguments, shard)
        for name, function in calls.items()
        if not _is_async(function)
    }
    waiting = {name: function for name, function in calls.items() if _is_async(function)}
    if waiting:
        outputs |= _call_together(waiting, arguments, shard)
    ids = [group.problem.id for group in shard.groups for _ in group.completions]
    columns = {name: _checked(name, outputs[name], ids) for name in names}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return Scores(
        rewards=_grouped(rows, shard),
        metrics={name: math.fsum(seen) / len(seen) for name, seen in sorted(log.metrics.items())},
        extra=dict(sorted(log.extra.items())),
    )


class _Log:
    """Receives what functions report besides their scores."""

    def __init__(self) -> None:
        self.metrics: dict[str, list[float]] = defaultdict(list)
        self.extra: dict[str, list[Any]] = defaultdict(list)

    def metric(self, name: str, value: float) -> None:
        number = _number(value)
        if number is None or not math.isfinite(number):
            raise ValueError(f"log_metric({name!r}, {value!r}): the value is no finite number")
        self.metrics[name].append(number)

    def column(self, column: str, values: Sequence[Any]) -> None:
        self.extra[column].extend(
            value if value is None or isinstance(value, str | bool | int | float) else str(value)
            for value in values
        )


def _arguments(shard: GeneratedShard, trainer_state: TrainerState, log: _Log) -> dict[str, Any]:
    """The keyword arguments of every function; lists of one entry per completion."""
    rows = [(group, completion) for group in shard.groups for completion in group.completions]
    columns = [name for name in rows[0][0].problem.columns if name not in NOT_FROM_COLUMNS]
    return {
        "prompts": [group.problem.prompt for group, _ in rows],
        "completions": [
            completion.text
            if isinstance(group.problem.prompt, str)
            else [{"role": "assistant", "content": completion.text}]
            for group, completion in rows
        ],
        "completion_ids": [list(completion.token_ids) for _, completion in rows],
        **{name: [group.problem.columns[name] for group, _ in rows] for name in columns},
        "trainer_state": trainer_state,
        "log_extra": log.column,
        "log_metric": log.metric,
    }


def _call(
    name: str, function: RewardFunction, arguments: Mapping[str, Any], shard: GeneratedShard
) -> Any:
    try:
        return function(**arguments)
    except MortalError:
        raise  # it says itself what is wrong, and whether another try may help
    except (Exception, SystemExit) as error:
        raise _raised(name, error, shard) from error


def _call_together(
    functions: Mapping[str, RewardFunction], arguments: Mapping[str, Any], shard: GeneratedShard
) -> dict[str, Any]:
    async def call_all() -> list[Any]:
        calls = (_awaited(function, arguments) for function in functions.values())
        return await asyncio.gather(*calls, return_exceptions=True)

    results = asyncio.run_coroutine_threadsafe(call_all(), _event_loop()).result()
    for name, result in zip(functions, results, strict=True):
        if isinstance(result, MortalError):
            raise result
        if isinstance(result, BaseException):
            raise _raised(name, result, shard) from result
    return dict(zip(functions, results, strict=True))


async def _awaited(function: Any, arguments: Mapping[str, Any]) -> Any:
    return await function(**arguments)


@functools.cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """One loop for all calls, as in TRL: a function may keep a client that belongs to its loop."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="async-rewards").start()
    return loop


def _is_async(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(function.__call__)


def _raised(name: str, error: BaseException, shard: GeneratedShard) -> RewardError:
    ids = [group.problem.id for group in shard.groups]
    problems = ids[0] if len(ids) == 1 else f"{ids[0]} ... {ids[-1]} ({len(ids)} problems)"
    inner = error.__traceback__.tb_next if error.__traceback__ else None  # without our own frame
    if inner is None and isinstance(error, TypeError):
        remedy = "A reward function takes the columns that it uses by name, and **kwargs."
    else:
        remedy = "Correct it, or return None where it cannot judge; a failure is never scored 0."
    trace = "".join(traceback.format_exception(type(error), error, inner))
    return RewardError(
        f"reward function {name!r} raised {type(error).__name__}: {error} on step {shard.step}, "
        f"problem {problems}. {remedy}\n{trace}"
    )


def _checked(name: str, output: Any, ids: Sequence[str]) -> list[float | None]:
    """One score per completion; `ids` are the problems of the completions."""
    if hasattr(output, "tolist"):  # a NumPy array or a torch tensor, without importing either
        output = output.tolist()
    if not isinstance(output, list | tuple):
        raise RewardError(
            f"reward function {name!r} returned {_shown(output)} ({type(output).__name__}); it "
            f"must return a list of {len(ids)} numbers, one per completion"
        )
    if len(output) != len(ids):
        raise RewardError(
            f"reward function {name!r} returned {len(output)} scores for {len(ids)} completions "
            f"(problems {ids[0]} ... {ids[-1]}); it must return one per completion"
        )
    return [_checked_score(name, value, row, ids) for row, value in enumerate(output)]


def _checked_score(name: str, value: Any, row: int, ids: Sequence[str]) -> float | None:
    if value is None:
        return None
    number = _number(value)
    if number is None or not abs(number) <= FLOAT32_MAX:
        raise RewardError(
            f"reward function {name!r} returned {_shown(value)} ({type(value).__name__}) for "
            f"problem {ids[row]} (completion {row - ids.index(ids[row])} of it); a score is a "
            "finite number, or None to abstain"
        )
    return number


def _number(value: Any) -> float | None:
    """A Python, NumPy or torch number as a float; None if it is no number."""
    try:
        value = value.item() if hasattr(value, "item") else value
        return float(value) if isinstance(value, bool | int | float) else None
    except (ValueError, OverflowError, RuntimeError):  # an array of several; an int beyond 1e308
        return None


def _grouped(rows: Sequence[Any], shard: GeneratedShard) -> list[list[Any]]:
    remaining = iter(rows)
    return [[next(remaining) for _ in group.completions] for group in shard.groups]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
