"""The owner's side of the process that compares."""

from __future__ import annotations

import functools
import itertools
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from importlib.util import find_spec

from mortal_steps.errors import RewardError, WorkerLostError
from mortal_steps.rewards.mathematics.verdicts import Batch, Comparison, Verdict
from mortal_steps.system.frames import HEADER, send_frame

TRIES = 2
"""A process that somebody ended is replaced once; comparing again changes nothing."""

LONGEST_SHEET = 16
"""Comparisons that one process makes; more are shared between several, for the cores' sake."""


class MathProcess:
    """A server of comparisons, started at the first need and again after it was lost.

    It ends when this process does.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def compare(
        self, comparisons: Sequence[Comparison], *, cpu_s: float
    ) -> dict[Comparison, Verdict]:
        """The verdict of each comparison, each within `cpu_s` seconds of CPU time.

        Raises `WorkerLostError` if processes are ended from outside or get no CPU time, and
        `RewardError` without math-verify.
        """
        sheets = sheets_of(comparisons)
        verdicts: list[Verdict] = []
        with self._lock:
            for _ in range(TRIES):
                verdicts = self._ask(Batch(sheets=sheets, cpu_s=cpu_s))
                if verdicts and Verdict.LOST not in verdicts:
                    return dict(zip(itertools.chain(*sheets), verdicts, strict=True))
        raise WorkerLostError(
            "processes that compare mathematics were ended from outside, or got no CPU time for "
            f"long: {verdicts.count(Verdict.LOST) or 'all'} of {sum(map(len, sheets))} comparisons "
            "gave nothing; memory may have run out"
        )

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            self._connection.close()  # at which it ends
            process.kill()
            process.wait()

    def _ask(self, batch: Batch) -> list[Verdict]:
        """What the server answers; empty if it is lost."""
        self._start()
        try:
            send_frame(self._connection, batch)
            (length,) = HEADER.unpack(self._receive(HEADER.size))
            return [Verdict(code) for code in self._receive(length)]
        except (EOFError, ConnectionError):
            self.close()
            return []
        except BaseException:
            self.close()  # its answer to this would be taken for the answer to the next batch
            raise

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        check_installed()
        self._connection, theirs = socket.socketpair()
        server = "mortal_steps.rewards.mathematics.server"
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", server, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                # SymPy walks through sets, whose order is to be the same in every process.
                env={**os.environ, "PYTHONHASHSEED": "0"},
            )

    def _receive(self, length: int) -> bytes:
        arrived = bytearray()
        while len(arrived) < length:
            chunk = self._connection.recv(length - len(arrived))
            if not chunk:
                raise EOFError
            arrived += chunk
        return bytes(arrived)


def sheets_of(comparisons: Sequence[Comparison]) -> tuple[tuple[Comparison, ...], ...]:
    """The comparisons, each once, those of a right answer together: parsing it again is cheap."""
    by_gold: dict[str, list[Comparison]] = {}
    for one in dict.fromkeys(comparisons):
        by_gold.setdefault(one.gold, []).append(one)
    return tuple(
        tuple(sheet[begin : begin + LONGEST_SHEET])
        for sheet in by_gold.values()
        for begin in range(0, len(sheet), LONGEST_SHEET)
    )


def math_process() -> MathProcess:
    """The one of this process."""
    return _of_process(os.getpid())


@functools.cache
def _of_process(pid: int) -> MathProcess:
    return MathProcess()


def check_installed() -> None:
    """Raise `RewardError` where math-verify is missing."""
    if find_spec("math_verify") is None:
        raise RewardError(
            "the interpreter of the reward functions has no math_verify; `pip install "
            "'math-verify==0.9.0'` there, or leave compute.local.reward.python out"
        )
