"""Calls reward functions as TRL's GRPOTrainer does, and accepts only real scores.

A function that raises an error, or returns anything but numbers and None, gives a `CallFailure`; a
failure is never scored 0. All this runs inside the reward host.
"""

import asyncio
import functools
import inspect
import math
import os
import time
import traceback
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
    cut,
    number_of,
    one_line,
    plain_value,
    short_name,
    shown,
)
from mortal_steps.rewards.columns import DatasetRowError
from mortal_steps.system.texts import printable
from mortal_steps.system.threads import event_loop_in_thread

FLOAT32_MAX = 3.4028234e38
"""Rewards are single precision in the loss, where larger ones would be infinite."""

LONGEST_MESSAGE = 300
"""Characters of an error's text that are recorded."""

LONGEST_TRACE = 20_000
"""Characters of a traceback that are recorded."""

ASYNC, WITH_ENVIRONMENTS = "async", "environments"
"""What a function may be: one that is awaited; one that takes TRL's argument `environments`."""

OF_POOLS = ("/multiprocessing/", "/concurrent/futures/process.py", "/joblib/", "/multiprocess/")
"""Files that a function waits in for processes that it has started."""
BROKEN_POOLS = ("BrokenProcessPool", "TerminatedWorkerError")
LOOK_AT_ITS_PROCESSES = (
    "It waits for processes that it has started; what went wrong in them stands in the log of the "
    "reward worker (`mortal test-reward --logs` prints it)."
)
NOT_PICKLED = ("Can't pickle", "Can't get local object", "cannot pickle")
"""What pickle says of what it cannot send to another process."""

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
    output: Any = None
    error: BaseException | None = None
    try:
        output = function(**arguments.by_name, **log.functions())
    except (Exception, SystemExit) as raised:  # noqa: BLE001 - whatever it is, it is its failure
        error = raised
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
            output = await awaitable
        return _Ended(seconds=time.perf_counter() - started, output=output)
    except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001 - as above
        seconds = time.perf_counter() - started
        return _Ended(seconds=seconds, error=error, is_late=limit.expired())


def _outcome(ended: _Ended, log: _Log, arguments: CallArguments, timeout_s: float) -> Outcome:
    """Return the outcome of a call; raise the error of MORTAL's own that ended it."""
    error = ended.error
    if error is None:
        try:
            return replace(_checked(ended.output, log, arguments), seconds=ended.seconds)
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - as above
            error = raised
    if isinstance(error, SandboxError):
        failure = _sandbox_lost(error)
    elif isinstance(error, JudgeError):
        failure = _judge_failed(error)
    elif isinstance(error, MortalError):
        raise error
    elif ended.is_late:
        failure = timed_out(timeout_s, _trace(error))
    else:
        failure = _raised(error, arguments)
    return replace(failure, seconds=ended.seconds)


@functools.cache
def event_loop() -> asyncio.AbstractEventLoop:
    """One event loop for all calls, as in TRL: clients belong to their loop."""
    return event_loop_in_thread("async-rewards")


def timed_out(timeout_s: float, trace: str) -> CallFailure:
    """Return the failure of a function that gave no answer in time."""
    waits = f" {LOOK_AT_ITS_PROCESSES}" if any(name in trace for name in OF_POOLS) else ""
    return CallFailure(
        kind="timeout",
        message=f"gave no answer within {timeout_s:g} s",
        remedy=f"Make it faster, or raise rewards.timeout_s.{waits}",
        trace=trace,
    )


def _sandbox_lost(error: SandboxError) -> CallFailure:
    return CallFailure(
        kind="sandbox",
        message=one_line(f"lost its sandbox: {error}", LONGEST_MESSAGE),
        remedy="`mortal doctor` says whether this machine can isolate programs, and `mortal doctor "
        "--modal` checks Modal.",
    )


def _judge_failed(error: JudgeError) -> CallFailure:
    return CallFailure(
        kind="judge",
        message=one_line(f"got no score from its judge: {error}", LONGEST_MESSAGE),
        remedy="Its answers are kept, so the next attempt only asks for the missing ones. A larger "
        "rewards.timeout_s gives it more time.",
    )


def _raised(error: BaseException, arguments: CallArguments) -> CallFailure:
    if isinstance(error, DatasetRowError):
        return CallFailure(
            kind="invalid",
            message=one_line(f"cannot use the dataset's {error.what}", LONGEST_MESSAGE),
            remedy=f"Correct problem {arguments.problem_ids[error.row]} in the dataset, or leave "
            "it out.",
        )
    known = f"It is given {', '.join([*arguments.by_name, 'log_extra', 'log_metric'])}."
    if isinstance(error, TypeError) and _inner_traceback(error) is None:
        remedy = f"A reward function takes the columns that it uses by name, and **kwargs. {known}"
    elif isinstance(error, KeyError) and error.args and error.args[0] not in arguments.by_name:
        remedy = f"Correct it, or return None where it cannot judge. {known}"
    elif type(error).__name__ in BROKEN_POOLS:
        remedy = LOOK_AT_ITS_PROCESSES
    elif any(text in str(error) for text in NOT_PICKLED):
        remedy = (
            "What a pool is given is found by its name in other processes: define it at the top "
            "of its file, not within a function, and open files and locks there."
        )
    else:
        remedy = "Correct it, or return None where it cannot judge; a failure is never scored 0."
    return CallFailure(
        kind="exception",
        message=one_line(f"raised {type(error).__name__}: {error}", LONGEST_MESSAGE),
        remedy=remedy,
        place=_place(error),
        trace=_trace(error),
    )


def _inner_traceback(error: BaseException) -> Any:
    """Return the error's traceback without our own frame."""
    return error.__traceback__.tb_next if error.__traceback__ else None


def _place(error: BaseException) -> str:
    """The innermost line below the current folder, or the function's own."""
    frames = traceback.extract_tb(_inner_traceback(error))
    if not frames:
        return ""
    here = f"{os.getcwd()}{os.sep}"
    frame = next((one for one in reversed(frames) if one.filename.startswith(here)), frames[0])
    return printable(f"{frame.filename.removeprefix(here)}, line {frame.lineno}")


def _trace(error: BaseException) -> str:
    if _inner_traceback(error) is None:
        return ""
    lines = traceback.format_exception(type(error), error, _inner_traceback(error))
    return cut(printable("".join(lines)), LONGEST_TRACE)


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
        return _no_scores(
            f"returned {len(output)} scores for {len(ids)} completions",
            "It must return one per completion.",
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
                "log_extra takes one per completion.",
            )
    return CallScores(scores=scores, metrics=dict(log.metrics), extra=dict(log.extra))


def _no_scores(message: str, remedy: str) -> CallFailure:
    return CallFailure(kind="invalid", message=message, remedy=remedy)


def _score(value: Any) -> float | None:
    number = number_of(value)
    return number if number is not None and abs(number) <= FLOAT32_MAX else None
