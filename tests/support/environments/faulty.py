"""An environment that fails where and as its row says, for its first `times`, and one that answers
otherwise each time. What they do is counted in the row's folder, which no process takes along."""

import contextlib
import ctypes
import os
import threading
import time
from pathlib import Path

NOTHING = object()


def count(folder, what):
    """Return how many times it was counted before, in whatever process."""
    with (Path(folder) / what).open("a") as file:
        before = file.tell()
        file.write(".")
    return before


def fail(kind):
    if kind == "raises":
        raise ValueError("out of cheese")
    if kind == "outage":
        raise ConnectionError("nobody answers at port 9")
    if kind == "hangs":
        time.sleep(600)
    if kind == "segv":
        ctypes.string_at(0)
    if kind == "exits":
        os._exit(3)
    if kind == "writes":
        for descriptor in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # the one that listed them
                if os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:"):
                    os.write(int(descriptor), b"\0" * 8)
        return NOTHING
    return {"nan": float("nan"), "text": "much", "number": 5}[kind]


class Shop:
    def reset(self, target, folder, at="", fault="", times=1, **row):
        self.target, self.total, self.folder = target, 0, folder
        self.fault = (at, fault, times)
        (Path(folder) / "pid").write_text(str(os.getpid()))
        garbage = self._fail("reset")
        return f" Reach {target}." if garbage is NOTHING else garbage

    def add(self, amount: int) -> str:
        """Add an amount.

        Args:
            amount: How much to add.
        """
        self._fail("add")
        self.total += amount
        return f"total {self.total}"

    async def look(self) -> str:
        """Look at the total."""
        self._fail("look")
        return f"seen {self.total}"

    def values(self) -> list:
        """Return numbers, of which one is none."""
        return [0.5, float("nan"), self.total]

    def daemon(self) -> str:
        """Leave a process that is nobody's child; return which."""
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            os.setsid()
            if os.fork() == 0:
                os.write(theirs, str(os.getpid()).encode())
                time.sleep(600)
            os._exit(0)
        os.waitpid(child, 0)
        return os.read(ours, 20).decode()

    def shared(self, number: int) -> str:
        """Send a signal to the process that all episodes are forks of.

        Args:
            number: Which signal.
        """
        os.kill(os.getppid(), number)
        time.sleep(0.2)
        return "sent"

    def pid(self) -> str:
        """Return where it lives."""
        return str(os.getpid())

    def wait(self, seconds: float) -> str:
        """Wait.

        Args:
            seconds: How long.
        """
        time.sleep(seconds)
        return "waited"

    def leave(self, seconds: float) -> str:
        """Leave a thread that ends the process later.

        Args:
            seconds: When.
        """
        threading.Timer(seconds, os._exit, (3,)).start()
        return "left"

    def clock(self) -> str:
        """Return what differs each time."""
        return f"tick {count(self.folder, 'clock')}"

    def _reply(self, text: str) -> str:
        self._fail("_reply")
        self.total += len(text)
        return f"total {self.total}"

    def get_reward(self) -> float:
        garbage = self._fail("get_reward")
        return float(self.total == self.target) if garbage is NOTHING else garbage

    def _fail(self, here):
        at, fault, times = self.fault
        count(self.folder, here)
        if at == here and count(self.folder, "faults") < times:
            return fail(fault)
        return NOTHING


class SavedShop(Shop):
    """Says what it is at, and can be brought there."""

    def _save(self) -> dict:
        return {"total": self.total}

    def _load(self, state: dict) -> None:
        self.total = state["total"]


def near(environments, **others):
    return [-abs(each.total - each.target) for each in environments]


def visit(folder: str) -> str:
    """Visit a folder.

    Args:
        folder: Which one.
    """
    return f"visit {count(folder, 'visits')}"


def visit_or_end(folder: str) -> str:
    """Visit a folder, and end the process the first time.

    Args:
        folder: Which one.
    """
    if count(folder, "ends") == 0:
        os._exit(3)
    return "went on"
