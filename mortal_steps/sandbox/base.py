"""The vocabulary of the sandbox: a program, its limits, and the result of running it."""

import math
from dataclasses import dataclass, field, fields
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a program may use, as the kernel counts it. Raises `ValueError` for a limit that is not
    finite and above 0, and for a part of a MiB, a KiB, a process or a file."""

    timeout: float = 5.0
    """Seconds of CPU time, for all of the program's processes together. This is the main limit,
    because it does not depend on what else the machine is doing."""
    wall_timeout: float | None = None
    """Seconds until all of the program's processes are killed. Time during which it waits for a
    core does not count. Default: twice `timeout`, plus 5 s."""
    memory_mb: int = 1024
    """MiB of address space for each process, and of memory for all of them together."""
    processes: int = 32
    """Processes and threads that may exist at the same time."""
    open_files: int = 64
    """Files that each process may have open at the same time."""
    tmp_mb: int = 64
    """MiB of its /tmp, the only folder that it can write to."""
    output_kb: int = 256
    """KiB of stdout, and as much of stderr. A program that writes more is killed."""

    def __post_init__(self) -> None:
        for each in fields(Limits):
            value = getattr(self, each.name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{each.name} = {value!r}: a limit is a number above 0")
            if each.type is int and not isinstance(value, int):
                raise ValueError(f"{each.name} = {value!r}: this limit is a whole number")

    @property
    def deadline_s(self) -> float:
        """Seconds after which a program is killed. Time spent waiting for a core does not count."""
        return 2 * self.timeout + 5.0 if self.wall_timeout is None else self.wall_timeout

    @property
    def latest_s(self) -> float:
        """Seconds after which a program is killed if nothing else competes for the cores. Its own
        processes may wait for each other, but for no longer than their limit on CPU time."""
        return self.deadline_s + self.timeout


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A Python program, run as `__main__`."""

    code: str
    """Its source text."""
    stdin: str = ""
    """What it reads from standard input."""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutionResult:
    """The result of a program. It describes only what the program did itself: if the sandbox fails,
    an error is raised instead."""

    success: bool
    """Whether it ended with exit code 0 and stayed within all limits."""
    stdout: str
    """What it wrote to standard output, decoded as UTF-8."""
    stderr: str
    """What it wrote to standard error, decoded as UTF-8."""
    exit_code: int | None
    """Its exit code; a negative number is the signal that killed it."""
    duration: float
    """Seconds from start to end. They depend on what else the machine is doing."""
    cpu_s: float = 0.0
    """Seconds of CPU time that its processes used."""
    wall_s: float = 0.0
    """The part of `duration` that counted towards `wall_timeout`, in seconds. Time during which
    it waited for a core, or its lane was suspended, does not count."""
    timed_out: bool = False
    """Whether it was killed for its CPU time, or at its deadline."""
    truncated: bool = False
    """Whether it wrote too much and was killed; `stdout` and `stderr` then hold the beginning."""
    limit: str | None = None
    """The limit that it exceeded: `cpu_s`, `wall_s`, `memory_mb`, `processes` or `output_kb`."""


class AnyLane(Protocol):
    """Runs one program after another. Constructing it starts it."""

    @property
    def is_worn_out(self) -> bool:
        """Whether a new lane should run the next program, although this one still works."""
        ...

    def run(self, program: Program) -> ExecutionResult:
        """Return a program's result once its processes ended. Raises `LaneLost`."""
        ...

    def close(self) -> None: ...
