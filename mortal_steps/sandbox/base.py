"""What is run in a sandbox, within which limits, and what comes of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a program may use. The kernel, not the program, keeps count."""

    cpu_s: float = 5.0
    """CPU time of all its processes. The main clock: it does not depend on what else the machine
    does."""
    wall_s: float | None = None
    """Time until all of its processes are ended, without that for which it waits for a core;
    default: twice `cpu_s` and 5 s."""
    memory_mb: int = 1024
    """Address space of each process, and memory of all together."""
    processes: int = 32
    """Processes and threads at a time."""
    open_files: int = 64
    tmp_mb: int = 64
    """Size of its /tmp, the only place that it can write to."""
    output_kb: int = 256
    """Of stdout and of stderr; a program that writes more is ended."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} = {value!r}: a limit is a number above 0")

    @property
    def deadline_s(self) -> float:
        """Time after which a program is ended, without that for which it waits for a core."""
        return 2 * self.cpu_s + 5.0 if self.wall_s is None else self.wall_s

    @property
    def latest_s(self) -> float:
        """Time after which it is ended, unless others keep it from running: its own processes
        wait for each other no longer than the CPU time that they have."""
        return self.deadline_s + self.cpu_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A Python program, run as `__main__`."""

    code: str
    stdin: str = ""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutionResult:
    """What came of a program. Whatever it did itself stands here; a sandbox that fails raises."""

    success: bool
    """Exit code 0, within all limits."""
    stdout: str
    stderr: str
    exit_code: int | None
    """Negative: the signal that ended it."""
    duration: float
    """Seconds from start to end, which depend on what else the machine does."""
    cpu_s: float = 0.0
    """CPU time of its processes."""
    wall_s: float = 0.0
    """Of `duration`, what counted for the limit of that name: without the time for which it waited
    for a core, or its lane stood still."""
    timed_out: bool = False
    """Ended by the limit on CPU time or at the deadline."""
    truncated: bool = False
    """Ended because it wrote too much; stdout and stderr hold the beginning."""
    limit: str | None = None
    """The limit that ended it: `cpu_s`, `wall_s`, `memory_mb`, `processes` or `output_kb`."""


class AnyLane(Protocol):
    """Whatever runs one program after the other; it is started by making it."""

    @property
    def is_worn_out(self) -> bool:
        """Whether another one should run the next program, although this one works."""
        ...

    def run(self, program: Program) -> ExecutionResult:
        """What came of a program, all of whose processes have ended; raises `LaneLost`."""
        ...

    def close(self) -> None:
        """End it and all that it runs."""
        ...
