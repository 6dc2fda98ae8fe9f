"""What is said of a call of a reward function that failed: what, where, and what to do."""

import os
import re
import traceback
from pathlib import Path
from typing import Any

from mortal_steps.errors import JudgeError, SandboxError
from mortal_steps.rewards.calling.calls import CallArguments, CallFailure
from mortal_steps.rewards.columns import DatasetRowError
from mortal_steps.system.texts import cut, one_line, printable

CALLER = str(Path(__file__).with_name("dispatch.py"))
"""The file whose stack frames stand before the frames of a function."""

LONGEST_MESSAGE = 300
"""Characters of an error's text that are recorded."""

LONGEST_TRACE = 20_000
"""Characters of a traceback that are recorded."""

OF_POOLS = ("/multiprocessing/", "/concurrent/futures/process.py", "/joblib/", "/multiprocess/")
"""Files that a function waits in for processes that it has started."""
BROKEN_POOLS = ("BrokenProcessPool", "TerminatedWorkerError")
LOOK_AT_ITS_PROCESSES = (
    "It waits for processes that it has started; what went wrong in them stands in the log of the "
    "reward worker (`mortal test-reward --logs` prints it)."
)
NOT_PICKLED = ("Can't pickle", "Can't get local object", "cannot pickle")
"""Beginnings of what pickle says of an object that it cannot send to another process."""

OF_CHATS = (
    "Prompts are chat messages here, so each completion is a list of messages, as in TRL: its text "
    "is completion[0]['content'], and that of a prompt is prompt[-1]['content']. A term with "
    'form = "strings" is given texts instead.'
)


def timed_out(timeout_s: float, trace: str) -> CallFailure:
    """Return the failure of a function that gave no answer in time."""
    waits = f" {LOOK_AT_ITS_PROCESSES}" if any(name in trace for name in OF_POOLS) else ""
    return CallFailure(
        kind="timeout",
        message=f"gave no answer within {timeout_s:g} s",
        remedy=f"Make it faster, or raise rewards.timeout_s.{waits}",
        trace=trace,
    )


def sandbox_lost(error: SandboxError) -> CallFailure:
    return CallFailure(
        kind="sandbox",
        message=one_line(f"lost its sandbox: {error}", LONGEST_MESSAGE),
        remedy="`mortal doctor` says whether this machine can isolate programs, and `mortal doctor "
        "--modal` checks Modal.",
    )


def judge_failed(error: JudgeError) -> CallFailure:
    return CallFailure(
        kind="judge",
        message=one_line(f"got no score from its judge: {error}", LONGEST_MESSAGE),
        remedy="Its answers are kept, so the next attempt only asks for the missing ones. A larger "
        "rewards.timeout_s gives it more time.",
    )


def raised(error: BaseException, arguments: CallArguments) -> CallFailure:
    if isinstance(error, DatasetRowError):
        return CallFailure(
            kind="invalid",
            message=one_line(f"cannot use the dataset's {error.what}", LONGEST_MESSAGE),
            remedy=f"Correct problem {arguments.problem_ids[error.row]} in the dataset, or leave "
            "it out.",
        )
    known = f"It is given {', '.join([*arguments.by_name, 'log_extra', 'log_metric'])}."
    if _takes_messages_for_text(error, arguments):
        remedy = OF_CHATS
    elif isinstance(error, TypeError) and _inner_traceback(error) is None:
        remedy = f"A reward function takes the columns that it uses by name, and **kwargs. {known}"
        remedy = f"{_missing_columns(error, arguments)}{remedy}"
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
        trace=trace_of(error),
    )


def _missing_columns(error: TypeError, arguments: CallArguments) -> str:
    """Return a sentence that names the parameters for which the dataset has no column."""
    _, is_missing, names = str(error).partition(" missing ")
    lacking = [name for name in re.findall(r"'(\w+)'", names) if name not in arguments.by_name]
    return f"The dataset has no column {', '.join(lacking)}. " if is_missing and lacking else ""


def _takes_messages_for_text(error: BaseException, arguments: CallArguments) -> bool:
    """Return whether a function meets lists or tables of chats where it awaits texts."""
    completions = arguments.by_name.get("completions") or [""]
    is_chat = isinstance(completions[0], list)
    met = re.search(r"\b(list|dict)\b", str(error)) is not None
    return is_chat and met and isinstance(error, AttributeError | TypeError)


def _inner_traceback(error: BaseException) -> Any:
    """Return the error's traceback from the function's own code on."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == CALLER:
        trace = trace.tb_next
    return trace


def _place(error: BaseException) -> str:
    """The innermost line below the current folder, or the function's own."""
    frames = traceback.extract_tb(_inner_traceback(error))
    if not frames:
        return ""
    here = f"{os.getcwd()}{os.sep}"
    frame = next((one for one in reversed(frames) if one.filename.startswith(here)), frames[0])
    return printable(f"{frame.filename.removeprefix(here)}, line {frame.lineno}")


def trace_of(error: BaseException) -> str:
    if _inner_traceback(error) is None:
        return ""
    lines = traceback.format_exception(type(error), error, _inner_traceback(error))
    return cut(printable("".join(lines)), LONGEST_TRACE)
