"""Programs that a model wrote, executed on one core: shut in, in the bare fork server, and one
interpreter each.

    python -m benchmarks.rewards
    python -m benchmarks.rewards --executions 100 --rounds 3

The three take turns, round by round, so that what else the machine does meets them alike. Wall time
is of single executions; CPU time is of all processes of a round, what starting a lane takes
subtracted.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.output import add_output_option, console, results_table, write_results
from mortal_steps.sandbox.base import Program
from mortal_steps.sandbox.box import ENVIRONMENT, Way, own_interpreter
from mortal_steps.sandbox.lane import Lane
from mortal_steps.sandbox.levels import way_to_run

SHUT_IN, BARE, INTERPRETERS = "shut in", "bare fork server", "interpreter each"
SHARE, PER_SECOND = 0.6, 100
"""Goals: of the bare fork server's rate, and executions per second of a core."""

PROGRAM = """
from collections import Counter

def most_common(words, count):
    ranked = sorted(Counter(words).items(), key=lambda item: (-item[1], item[0]))
    return [word for word, _ in ranked[:count]]

assert most_common("a b a c b a".split(), 2) == ["a", "b"]
assert most_common([], 3) == []
assert most_common(["x"] * 100 + ["y"] * 99, 1) == ["x"]
print("passed")
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """Of one way to execute programs."""

    way: str
    per_s: float
    """By wall time, one after the other."""
    per_cpu_s: float
    p50_ms: float
    p95_ms: float


Execute = Callable[[], str]


@contextlib.contextmanager
def lane(way: Way) -> Iterator[Execute]:
    """Programs in a lane."""
    opened = Lane(way)
    with contextlib.closing(opened):
        yield lambda: opened.run(Program(code=PROGRAM)).stdout


@contextlib.contextmanager
def interpreters() -> Iterator[Execute]:
    """Programs in interpreters of their own."""
    command = [own_interpreter().executable, "-P", "-s", "-S", "-c", PROGRAM]

    def execute() -> str:
        return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True).stdout

    yield execute


def cpu_of_children() -> float:
    """Seconds that the processes used that this one has waited for, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(
    make: Callable[[], contextlib.AbstractContextManager[Execute]], executions: int
) -> tuple[list[float], float]:
    """Wall time of each execution, and CPU time of all."""
    before = cpu_of_children()
    with make():
        pass
    start = cpu_of_children() - before
    times = []
    with make() as execute:
        for _ in range(executions):
            began = time.perf_counter()
            assert execute() == "passed\n"
            times.append(time.perf_counter() - began)
    return times, cpu_of_children() - before - 2 * start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--executions", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    add_output_option(parser, "rewards")
    args = parser.parse_args()
    boxed = way_to_run(allow_unisolated=False)
    ways = {SHUT_IN: lambda: lane(boxed), BARE: lambda: lane("bare"), INTERPRETERS: interpreters}
    times: dict[str, list[float]] = {way: [] for way in ways}
    cpu_s = dict.fromkeys(ways, 0.0)
    for _ in range(args.rounds):
        for way, make in ways.items():
            each, used = measure(make, args.executions)
            times[way] += each
            cpu_s[way] += used
    found = [rates(way, times[way], cpu_s[way]) for way in ways]
    show(found, boxed)
    write_results(args.output, {"boxed": boxed, "executions": args.executions, "rates": found})


def rates(way: str, times: list[float], cpu_s: float) -> Rates:
    """Return what became of all rounds."""
    cuts = statistics.quantiles(times, n=20)
    return Rates(
        way=way,
        per_s=len(times) / sum(times),
        per_cpu_s=len(times) / cpu_s,
        p50_ms=1000 * cuts[9],
        p95_ms=1000 * cuts[18],
    )


def show(found: list[Rates], boxed: Way) -> None:
    """As a table, with the goals below."""
    heads = ("", "a second", "a CPU second", "p50 ms", "p95 ms")
    table = results_table(f"executions of a program on one core ({boxed})", *heads, left=("",))
    for one in found:
        numbers = (one.per_s, one.per_cpu_s, one.p50_ms, one.p95_ms)
        table.add_row(one.way, *(f"{number:.1f}" for number in numbers))
    console.print(table)
    shut_in, bare, interpreter = found
    share = shut_in.per_s / bare.per_s
    console.print(
        f"shut in: {share:.2f} of the bare fork server (goal {SHARE}), "
        f"{shut_in.per_s / interpreter.per_s:.1f} times an interpreter each, "
        f"{shut_in.per_cpu_s:.0f} a second of a core (goal {PER_SECOND})"
    )


if __name__ == "__main__":
    main()
