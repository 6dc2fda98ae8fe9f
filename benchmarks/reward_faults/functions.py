"""A reward function that fails as the column `fault` of a problem says: the faults of `reward`."""

from __future__ import annotations

import ctypes
import os
import re
import resource
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

SHORTEST = 12
MB = 2**20
ONCE = "once "


def lengths(completions: Sequence[str], fault: Sequence[str], **kwargs: Any) -> list[float]:
    """How much longer each completion is than the shortest."""
    Path(__file__).read_bytes()  # as most functions, it needs a descriptor
    scores = [float(len(text) - SHORTEST) for text in completions]
    for name in set(fault) - {""}:
        once = name.startswith(ONCE)
        name = name.removeprefix(ONCE)
        if once and Path("struck").exists():
            continue
        Path("struck").touch()
        scores = FAULTS[name](scores)
    return scores


def misses_a_module(scores: list[float]) -> NoReturn:
    import not_on_this_worker  # type: ignore[import-not-found]

    raise AssertionError(not_on_this_worker)


def hangs(scores: list[float]) -> list[float]:
    re.match(r"(a+)+$", "a" * 60 + "b")  # for years, and no other thread gets the interpreter
    return scores


def ends_its_process(scores: list[float]) -> NoReturn:
    os._exit(0)


def is_killed(scores: list[float]) -> list[float]:
    os.kill(os.getpid(), signal.SIGKILL)
    return scores


def crashes(scores: list[float]) -> list[float]:
    ctypes.string_at(0)
    return scores


def returns_too_few(scores: list[float]) -> list[float]:
    return scores[1:]


def returns_nan(scores: list[float]) -> list[float]:
    return [float("nan"), *scores[1:]]


def closes_its_files(scores: list[float]) -> list[float]:
    os.closerange(0, 4096)  # stdout, and the connection that its answer goes through
    return scores


def runs_out_of_memory(scores: list[float]) -> list[float]:
    resource.setrlimit(resource.RLIMIT_AS, (2048 * MB, resource.RLIM_INFINITY))
    return scores * (4096 * MB)


def leaks_descriptors(scores: list[float]) -> list[float]:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.RLIM_INFINITY))
    while True:
        os.open("/dev/null", os.O_RDONLY)


def leaves_processes(scores: list[float]) -> NoReturn:
    for number in range(5):
        child = subprocess.Popen(["setsid", "sleep", "600"])
        Path(f"child-{number}").write_text(str(child.pid))
    raise TimeoutError("they do not answer")


def kills_its_worker(scores: list[float]) -> list[float]:
    os.kill(_parent_of(os.getppid()), signal.SIGKILL)
    signal.pause()
    return scores


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


FAULTS: dict[str, Callable[[list[float]], list[float]]] = {
    "misses a module": misses_a_module,
    "hangs, holding the interpreter": hangs,
    "ends its process": ends_its_process,
    "is killed": is_killed,
    "crashes (SIGSEGV)": crashes,
    "returns too few scores": returns_too_few,
    "returns NaN": returns_nan,
    "closes all files": closes_its_files,
    "runs out of memory": runs_out_of_memory,
    "uses up the descriptors": leaks_descriptors,
    "leaves processes behind": leaves_processes,
    "kills its worker": kills_its_worker,
}
