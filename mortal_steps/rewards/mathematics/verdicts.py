"""What is compared, what came of it, and the lanes in which that is found out."""

import enum
import functools
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from mortal_steps.errors import RewardError, SandboxError, WorkerLostError
from mortal_steps.sandbox.base import ExecutionResult, Limits, Program
from mortal_steps.sandbox.box import own_interpreter
from mortal_steps.sandbox.lane import Lane
from mortal_steps.sandbox.pool import OTHERS_SEND, Pool
from mortal_steps.system.resources import num_cores

COMPARING = "mortal_steps.rewards.mathematics.comparing"
PROGRAM = f"from {COMPARING} import main\nmain()\n"
MEMORY_MB = 1024
"""MiB of address space for a comparison, SymPy included; common ones take a tenth of it."""
LONGEST_SHEET = 16
"""Comparisons that one program makes; more are shared between several, for the cores' sake."""

Sheet = Sequence["Comparison"]


class Verdict(enum.IntEnum):
    """What came of a comparison. The first four are its own findings; the others are what the end
    of the process that made it says."""

    EQUAL = 1
    """The answer is equal to the right one."""
    DIFFERENT = 2
    """It is another one."""
    UNPARSED = 3
    """The answer is no mathematical expression."""
    GOLD_UNPARSED = 4
    """The right answer is none."""
    OUT_OF_TIME = 5
    """The comparison took all its CPU time."""
    CRASHED = 6
    """The comparison ended its process: a fault in native code, memory."""


COMPLETION_FAILED = (Verdict.UNPARSED, Verdict.OUT_OF_TIME, Verdict.CRASHED)
"""What a completion brought about itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A right answer and a completion's text; the right answer with itself if that is None."""

    gold: str
    answer: str | None


def compare_all(comparisons: Sequence[Comparison], *, cpu_s: float) -> dict[Comparison, Verdict]:
    """Return each comparison's verdict within `cpu_s` seconds of CPU time. Raises `WorkerLostError`
    if processes are ended or starved, `RewardError` without math-verify."""
    check_installed()
    verdicts: dict[Comparison, Verdict] = {}
    waiting = sheets_of(comparisons)
    while waiting:
        rests: list[Sheet] = []
        for sheet, result in zip(waiting, _run(waiting, cpu_s), strict=True):
            found = [Verdict[name] for name in result.stdout.split()]
            if len(found) < len(sheet):
                found.append(_verdict_of_end(result))
            verdicts.update(zip(sheet, found, strict=False))
            rest = sheet[len(found) :]
            middle = (len(rest) + 1) // 2  # so that cores share a sheet full of endless ones
            rests += [part for part in (rest[:middle], rest[middle:]) if part]
        waiting = rests
    return verdicts


def sheets_of(comparisons: Sequence[Comparison]) -> list[Sheet]:
    """Return the comparisons, each once, by right answer: parsing it again is cheap."""
    by_gold: dict[str, list[Comparison]] = {}
    for one in dict.fromkeys(comparisons):
        by_gold.setdefault(one.gold, []).append(one)
    return [
        sheet[begin : begin + LONGEST_SHEET]
        for sheet in by_gold.values()
        for begin in range(0, len(sheet), LONGEST_SHEET)
    ]


def _run(sheets: Sequence[Sheet], cpu_s: float) -> list[ExecutionResult]:
    programs = [
        Program(
            code=PROGRAM,
            stdin=json.dumps({"cpu_s": cpu_s, "sheet": [[one.gold, one.answer] for one in sheet]}),
            limits=Limits(timeout=len(sheet) * cpu_s + 1.0, memory_mb=MEMORY_MB),
        )
        for sheet in sheets
    ]
    try:
        return lanes().run(programs)
    except SandboxError as error:
        raise WorkerLostError(f"processes that compare mathematics were lost: {error}") from error


def _verdict_of_end(result: ExecutionResult) -> Verdict:
    """Return what the end of a program says of the comparison that it was at."""
    if result.exit_code == -signal.SIGPROF:
        return Verdict.OUT_OF_TIME
    if result.limit is not None or result.exit_code in OTHERS_SEND:
        raise WorkerLostError(
            "processes that compare mathematics were ended from outside, or did not go on; memory "
            "may have run out"
        )
    return Verdict.CRASHED


@functools.cache
def lanes() -> Pool[Lane]:
    """Return the lanes of this process: one per core, unisolated, for SymPy is trusted."""
    # Not where a user's folder may shadow the standard library: lanes append all of these to it.
    ours = str(Path(sys.modules["mortal_steps"].__path__[0]).parent)
    folders = dict.fromkeys([*filter(os.path.isdir, sys.path), ours])
    interpreter = replace(own_interpreter(), packages=tuple(folders))
    return Pool(lambda: Lane("bare", interpreter, preload=[COMPARING]), num_cores())


def check_installed() -> None:
    """Raise `RewardError` where math-verify is missing."""
    if find_spec("math_verify") is None:
        raise RewardError(
            "the interpreter of the reward functions has no math_verify; `pip install "
            "'math-verify==0.9.0'` there, or leave compute.local.reward.python out"
        )
