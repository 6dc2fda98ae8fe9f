"""Reward functions that fail, each in its own way, on completions that hold the word for it."""

import asyncio
import ctypes
import itertools
import json
import os
import pickle
import re
import stat
import struct
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
    """Return the lengths, once `fail` was called if some completion holds the word."""
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


def spoils_its_process(completions, **kwargs):
    """Fails on the word, and from then on whatever it is called with, as after a leak."""
    if "SPOILT" in os.environ:
        raise OSError("too many open files")
    return scores(completions, "spoil", spoil)


def spoils_its_process_once(completions, **kwargs):
    return spoils_its_process(completions if calls("spoils") else ["spoil"])


def spoil():
    os.environ["SPOILT"] = "yes"
    raise OSError("too many open files")


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


def logs_too(completions, log_extra, **kwargs):
    log_extra("text", [len(text) for text in completions])
    return length(completions)


def speaks_strangely(completions, log_extra, log_metric, **kwargs):
    """Says what a model wrote, which JSON can carry and UTF-8 cannot, and a terminal obeys."""
    odd = [json.loads(text) if text.startswith('"') else text for text in completions]
    log_extra(f"said {odd[-1]}", odd)
    log_extra("number", [float("nan") for _ in odd])
    log_metric(f"of {odd[-1]}", 1.0)
    return scores(odd, "raise", lambda: fail_with(odd[0]))


def fail_with(text):
    raise ValueError(text)


def leaves_a_daemon(completions, **kwargs):
    """In a session of its own, its parent gone: no signal to a group reaches it."""
    command = "setsid sleep 600 & echo $! > daemon"
    subprocess.run(["sh", "-c", command], check=True, start_new_session=True)
    return length(completions)


class Touch:
    """Unpickled, it makes a file."""

    def __reduce__(self):
        return (open, ("forged", "w"))


def forges(completions, **kwargs):
    """Writes an answer of its own into the connection of its process."""
    pickled = pickle.dumps(Touch())
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and try_is_socket(int(name)):
            os.write(int(name), struct.pack(">Q", len(pickled)) + pickled)
    return length(completions)


def try_is_socket(descriptor):
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def answers_for_another(completions, **kwargs):
    """Return a whole answer, with the number of another request."""
    answer = b'{"number": 1, "outcomes": {}}'
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and try_is_socket(int(name)):
            os.write(int(name), struct.pack(">Q", len(answer)) + answer)
    return length(completions)


def trickles(completions, **kwargs):
    """Writes an answer that never ends, a byte at a time."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and try_is_socket(int(name)):
            os.write(int(name), struct.pack(">Q", 1000))
            while True:
                os.write(int(name), b" ")
                time.sleep(0.02)


SEEN_OR_NOT = (
    *("PREFECT_API_KEY", "MODAL_TOKEN_SECRET", "MODAL_PASSED_ON", "JUDGE_API_KEY", "HF_TOKEN"),
    *("WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY"),
)


def sees_the_environment(completions, log_extra, **kwargs):
    log_extra("seen", [" ".join(n for n in SEEN_OR_NOT if n in os.environ) for _ in completions])
    return length(completions)


def trusts_gym_rows(completions, **kwargs):
    from mortal_steps.rewards.functions import reasoning_gym_score

    return reasoning_gym_score(completions, **kwargs)


_here = 0


async def meets(completions, **kwargs):
    """Returns once another function of the shard waits here, too."""
    global _here
    _here += 1
    while _here < 2:
        await asyncio.sleep(0.01)
    return [1.0] * len(completions)


async def meets_too(completions, **kwargs):
    return await meets(completions)
