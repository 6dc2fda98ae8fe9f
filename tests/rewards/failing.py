"""Reward functions that fail, each in its own way, on completions that hold the word for it."""

import asyncio
import ctypes
import itertools
import os
import re
import subprocess
import time
from pathlib import Path

from mortal_steps.errors import TransientError


class JudgeIsBusyError(TransientError):
    """A type that is unknown outside of the reward host."""


def length(completions, **kwargs):
    return [float(len(text)) for text in completions]


def calls(name):
    """How often this was called with this name, in whatever process; counted by files."""
    return next(n for n in itertools.count() if try_create(f"{name}-{n}"))


def try_create(name):
    try:
        Path(name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def scores(completions, word, fail):
    """The lengths, once `fail` was called if some completion holds the word."""
    if any(word in text for text in completions):
        fail()
    return length(completions)


def raises(completions, **kwargs):
    return scores(completions, "raise", lambda: 1 / 0)


def sleeps(completions, **kwargs):
    return scores(completions, "sleep", lambda: time.sleep(60))


def backtracks(completions, regex=False, **kwargs):
    """Holds the interpreter for years; also for problems with a column `regex`."""
    return scores(
        [*completions, "regex"] if regex else completions,
        "regex",
        lambda: re.match(r"(a+)+$", "a" * 60 + "b"),
    )


def exits(completions, **kwargs):
    return scores(completions, "exit", lambda: os._exit(3))


def segfaults(completions, **kwargs):
    return scores(completions, "fault", lambda: ctypes.string_at(0))


def leaves_a_child(completions, **kwargs):
    def fail():
        child = subprocess.Popen(["sleep", "600"])
        Path("child").write_text(str(child.pid))
        time.sleep(60)

    return scores(completions, "child", fail)


def returns_nan(completions, **kwargs):
    return [float("nan") if "nan" in text else 1.0 for text in completions]


def flaky(completions, **kwargs):
    """Fails the first time; spoils what it was given, as functions may."""
    completions[0] += "!"
    if calls("flaky") == 0:
        raise ConnectionError("not now")
    return length(completions)


def unreachable(completions, **kwargs):
    raise JudgeIsBusyError("ask again later")


async def patient(completions, **kwargs):
    await asyncio.sleep(0)
    return length(completions)


async def blocks_the_loop(completions, **kwargs):
    return scores(completions, "block", lambda: time.sleep(60))


async def ends_the_loop(completions, **kwargs):
    return scores(completions, "end", lambda: os._exit(4))


def logs(completions, log_extra, log_metric, **kwargs):
    log_extra("text", list(completions))
    log_metric("calls", 1.0)
    return scores(completions, "logs", lambda: 1 / 0)
