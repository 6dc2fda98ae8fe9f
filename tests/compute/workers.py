"""Workers for the tests of the local compute."""

import os
import signal
import time
from pathlib import Path

from mortal_steps.errors import DataError


class Counter:
    def __init__(self, *, start: int = 0) -> None:
        if start < 0:
            raise DataError("start must not be negative")
        self.value = start

    def add(self, *, amount: int) -> int:
        self.value += amount
        return self.value

    def pid(self) -> int:
        return os.getpid()

    def where(self) -> dict:
        return {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")}

    def sleep(self, *, seconds: float) -> str:
        time.sleep(seconds)
        return "slept"

    def fail(self, *, kind: str) -> None:
        if kind == "own":
            raise DataError("no such thing")
        raise ZeroDivisionError("one by none")

    def echo(self, *, blob: bytes) -> bytes:
        return blob

    def prepare(self) -> None:
        """Dies where a file `dies-<process>` tells it to, as often as that has lines."""
        name = Path(os.readlink("/proc/self/fd/1")).stem
        orders = Path(os.readlink("/proc/self/fd/1")).with_name(f"dies-{name}")
        lines = orders.read_text().splitlines() if orders.exists() else []
        if lines:
            orders.write_text("\n".join(lines[1:]))
            os.kill(os.getpid(), signal.SIGKILL)
