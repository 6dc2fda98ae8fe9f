"""Calls reward functions as TRL's GRPOTrainer does, and accepts only real scores.

A function that raises an error, or returns anything but numbers and None, gives a `CallFailure`; a
failure is never scored 0. All this runs inside the reward host.
"""

import asyncio
import functools
import inspect
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from mortal_steps.errors import JudgeError, MortalError, SandboxError
from mortal_steps.rewards.base import RewardFunction
from mortal_steps.rewards.calling.calls import (
    CallArguments,
    CallFailure,
    CallScores,
    Outcome,
    Plain,
    number_of,
    plain_value,
    short_name,
    shown,
)
from mortal_steps.rewards.calling.failures import (
    judge_failed,
    raised,
    sandbox_lost,
    timed_out,
    trace_of,
)
from mortal_steps.system.texts import one_line
from mortal_steps.system.threads import event_loop_in_thread

FLOAT32_MAX = 3.4028234e38
"""Rewards are single precision in the loss, where larger ones would be infinite."""

ASYNC, WITH_ENVIRONMENTS = "async", "environments"
"""What a function may be: one that is awaited; one that takes TRL's argument `environments`."""

NOT_LISTED = (str, bytes, Mapping, Set, Awaitable)
"""Types that can be iterated over but hold no scores in an order."""

MOST_NAMES = 100
MOST_LOGGED = 16 * 2**20
"""Metrics or columns that one call may log, and characters in its columns."""


def begin_call(
    function: RewardFunction, arguments: CallArguments, *, timeout_s: float
) -> Callable[[], Outcome]:
    """Begin to call a function once on all completions, and return what waits for its outcome.

    Only an async function still runs then; one that takes longer than `timeout_s` is cancelled. A
    plain one cannot be stopped from inside. Waiting raises the `MortalError` that the function
    raised: it says itself what is wrong, and whether another try may help.
    """
    started, log = time.perf_counter(), _Log()
    of_teacher = {}
    if arguments.prompt_ids is not None:
        of_teacher = {
            "prompt_ids": arguments.prompt_ids,
            "log_teacher": log.teacher_logprobs.extend,
        }
    output: Any = None
    error: BaseException | None = None
    try:
        output = _listed(function(**{**arguments.by_name, **of_teacher}, **log.functions()))
    except (Exception, SystemExit) as wrong:  # noqa: BLE001 - whatever it is, it is its failure
        error = wrong
    if inspect.isawaitable(output):
        waiting = asyncio.run_coroutine_threadsafe(_awaited(output, timeout_s), event_loop())
        return lambda: _outcome(waiting.result(), log, arguments, timeout_s)
    ended = _Ended(seconds=time.perf_counter() - started, output=output, error=error)
    return lambda: _outcome(ended, log, arguments, timeout_s)


def is_async(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(function.__call__)


def takes_environments(function: Any) -> bool:
    """Return whether a function takes TRL's `environments`, by name or `**kwargs`."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    if "environments" in parameters:
        return True
    called = function if inspect.isroutine(function) else type(function).__call__
    code = getattr(inspect.unwrap(called), "__code__", None)
    keywords = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    return keywords and code is not None and "environments" in code.co_consts


class _Log:
    """Receives what a function reports besides its scores."""

    def __init__(self) -> None:
        self.metrics: dict[str, list[float]] = defaultdict(list)
        self.extra: dict[str, list[Plain]] = defaultdict(list)
        self.teacher_logprobs: list[str | None] = []
        self._num_characters = 0

    def functions(self) -> dict[str, Any]:
        """Return the keyword arguments that report here."""
        return {"log_extra": self._column, "log_metric": self._metric}

    def _metric(self, name: str, value: float) -> None:
        number = number_of(value)
        if number is None or not math.isfinite(number):
            raise ValueError(
                f"log_metric({short_name(name)!r}, {one_line(repr(value), 80)}): the value is no "
                "finite number"
            )
        self.metrics[self._known(self.metrics, name)].append(number)

    def _column(self, column: str, values: Sequence[Any]) -> None:
        plain = [plain_value(value) for value in values]
        self._num_characters += sum(len(value) for value in plain if isinstance(value, str))
        if self._num_characters > MOST_LOGGED:
            raise ValueError(f"log_extra: more than {MOST_LOGGED:,} characters in one call")
        self.extra[self._known(self.extra, column)].extend(plain)

    def _known(self, there: Mapping[str, Any], name: str) -> str:
        name = short_name(name)
        if name not in there and len(there) == MOST_NAMES:
            raise ValueError(
                f"more than {MOST_NAMES} metrics or columns are logged, the last {name!r}; a name "
                "must not hold what differs from one completion to the next"
            )
        return name


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ended:
    """How a call ended."""

    seconds: float
    output: Any = None
    error: BaseException | None = None
    is_late: bool = False


async def _awaited(awaitable: Awaitable[Any], timeout_s: float) -> _Ended:
    """Await it. Nothing is raised here: an event loop that meets a `SystemExit` ends."""
    started = time.perf_counter()
    try:
        async with asyncio.timeout(timeout_s) as limit:
            output = _listed(await awaitable)
        return _Ended(seconds=time.perf_counter() - started, output=output)
    except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001 - as above
        seconds = time.perf_counter() - started
        return _Ended(seconds=seconds, error=error, is_late=limit.expired())


def _listed(output: Any) -> Any:
    """Return what a function yields or counts up as a list, as TRL does; else the output itself."""
    if isinstance(output, Iterable) and not isinstance(output, NOT_LISTED):
        return output if hasattr(output, "tolist") else list(output)
    return output


def _outcome(ended: _Ended, log: _Log, arguments: CallArguments, timeout_s: float) -> Outcome:
    """Return the outcome of a call; raise the error of MORTAL's own that ended it."""
    error = ended.error
    if error is None:
        try:
            return replace(_checked(ended.output, log, arguments), seconds=ended.seconds)
        except (Exception, SystemExit) as wrong:  # noqa: BLE001 - as above
            error = wrong
    if isinstance(error, SandboxError):
        failure = sandbox_lost(error)
    elif isinstance(error, JudgeError):
        failure = judge_failed(error)
    elif isinstance(error, MortalError):
        raise error
    elif ended.is_late:
        failure = timed_out(timeout_s, trace_of(error))
    else:
        failure = raised(error, arguments)
    return replace(failure, seconds=ended.seconds)


@functools.cache
def event_loop() -> asyncio.AbstractEventLoop:
    """One event loop for all calls, as in TRL: clients belong to their loop."""
    return event_loop_in_thread("async-rewards")


def _checked(output: Any, log: _Log, arguments: CallArguments) -> Outcome:
    """Return the result of a call that returned."""
    ids = arguments.problem_ids
    if hasattr(output, "tolist"):  # a NumPy array or a torch tensor, without importing either
        output = output.tolist()
    if not isinstance(output, list | tuple):
        return _no_scores(
            f"returned {shown(output)}", f"It must return a list of {len(ids)} numbers."
        )
    if len(output) != len(ids):
        noun = "score" if len(output) == 1 else "scores"
        return _no_scores(
            f"returned {len(output)} {noun} for {len(ids)} completions",
            "It must return one score per completion.",
        )
    scores = [_score(value) for value in output]
    for row, (value, score) in enumerate(zip(output, scores, strict=True)):
        if value is not None and score is None:
            return _no_scores(
                f"returned {shown(value)} for problem {ids[row]} "
                f"(completion {row - ids.index(ids[row])} of it)",
                "A score is a finite number, or None to abstain.",
            )
    for column, logged in log.extra.items():
        if len(logged) != len(ids):
            return _no_scores(
                f"logged {len(logged)} values of {column!r} for {len(ids)} completions",
                "log_extra takes one value per completion.",
            )
    return CallScores(
        scores=scores,
        metrics=dict(log.metrics),
        extra=dict(log.extra),
        teacher_logprobs=log.teacher_logprobs,
    )


def _no_scores(message: str, remedy: str) -> CallFailure:
    return CallFailure(kind="invalid", message=message, remedy=remedy)


def _score(value: Any) -> float | None:
    number = number_of(value)
    return number if number is not None and abs(number) <= FLOAT32_MAX else None
