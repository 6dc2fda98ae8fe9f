"""Cells alone: how soon they are there, how fast they answer, what they take; and the ledger."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks.episodes import shop
from mortal_steps.config import EnvironmentConfig
from mortal_steps.environments.ledger import Answered, Ledger
from mortal_steps.environments.messages import (
    EpisodeStart,
    Opened,
    ToolAnswer,
    ToolCall,
)
from mortal_steps.environments.processes.cells import Cells
from mortal_steps.environments.processes.host import described, environment_host
from mortal_steps.hosts.base import ForkingHost

CONFIG = EnvironmentConfig(factory=f"{shop.__file__}:Shop")
START = EpisodeStart(environment="", prompt=[], row={"target": 4}, reset_seed=1, seed=1)
CALL = ToolCall(name="add", arguments={"amount": 1, "who": "1"}, call_id="train-0/0/0")
EPISODES, ROUNDS, CELLS = 64, 30, 512


def measure(folder: Path) -> dict[str, float]:
    """Return all figures."""
    with _host() as host:
        return {
            **_starts(host),
            **_calls(host),
            **_rounds(host),
            **_memory(host),
            **_ledger(folder),
        }


@contextmanager
def _host() -> Iterator[ForkingHost]:
    host = environment_host(CONFIG, {})
    try:
        described(host)
        host.fork().close()  # before the first one, the host tidies up
        yield host
    finally:
        host.close()


def _starts(host: ForkingHost) -> dict[str, float]:
    """Start cells one after the other, until their `reset` is done."""
    times = []
    for _ in range(50):
        began = time.perf_counter()
        fork = host.fork()
        fork.call("open", returns=Opened, timeout_s=60.0, start=START)
        times.append(time.perf_counter() - began)
        fork.close()
    return {"cell start, ms": 1e3 * statistics.median(times)}


def _calls(host: ForkingHost) -> dict[str, float]:
    """Call two cells beside each other, each of them call after call."""
    forks, times = [host.fork(), host.fork()], []
    for fork in forks:
        fork.call("open", returns=Opened, timeout_s=60.0, start=START)

    def ask(fork: Any) -> None:
        for _ in range(1_000):
            began = time.perf_counter()
            fork.call("call", returns=list[ToolAnswer], timeout_s=60.0, episode=0, calls=[CALL])
            times.append(time.perf_counter() - began)

    threads = [threading.Thread(target=ask, args=(fork,)) for fork in forks]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    for fork in forks:
        fork.close()
    return {
        "calls of two cells, one by one, a second": len(times) / seconds,
        "call, median, ms": 1e3 * statistics.median(times),
        "call, 99th percentile, ms": 1e3 * sorted(times)[int(0.99 * len(times))],
    }


def _rounds(host: ForkingHost) -> dict[str, float]:
    """Call many cells at once, eight calls a turn."""
    cells = Cells(host, CONFIG)
    try:
        cells.open({str(number): [START] for number in range(EPISODES)})
        asked = {(str(number), 0): [CALL] * 8 for number in range(EPISODES)}
        times = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            cells.call(asked)
            times.append(time.perf_counter() - began)
    finally:
        cells.close()
    return {"calls in rounds of 64 x 8, a second": EPISODES * 8 / statistics.median(times)}


def _memory(host: ForkingHost) -> dict[str, float]:
    """Sum up what is private to the host and its cells, each of which has answered a call."""
    cells, before = Cells(host, CONFIG), psutil.Process().children(recursive=True)
    try:
        began = time.perf_counter()
        cells.open({str(number): [START] for number in range(CELLS)})
        seconds = time.perf_counter() - began
        cells.call({(str(number), 0): [CALL] for number in range(CELLS)})
        forks = set(psutil.Process().children(recursive=True)) - set(before)
        assert len(forks) == CELLS
        private = sum(map(_private, (process.pid for process in forks)))
    finally:
        cells.close()
    return {"512 cells, GiB": private / 2**30, "512 cells open, s": seconds}


def _private(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def _ledger(folder: Path) -> dict[str, float]:
    """Record rounds of as many answers, each of them on the disk before the next one begins."""
    ledger, times = Ledger(folder / "calls", ""), []
    for number in range(ROUNDS):
        answers = [ToolAnswer(name="add", content="total 6", seconds=0.01)]
        answered = [
            Answered(history=f"{number}-{episode}", episode=str(episode), answers=answers)
            for episode in range(EPISODES)
        ]
        began = time.perf_counter()
        ledger.note([(each, None) for each in answered])
        times.append(time.perf_counter() - began)
    ledger.close()
    return {"ledger, a round of 64, ms": 1e3 * statistics.median(times)}
