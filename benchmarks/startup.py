"""From `mortal train` to its first train step: wall and CPU seconds, process by process.

    python -m benchmarks.startup                    # three rounds, five minutes
    python -m benchmarks.startup --before COMMIT    # the code of that commit beside it

Each round starts the demo twice: cold, with no state directory and no runs, and warm, with both
there. The run is killed when the result of its first step is committed. CPU seconds mean more than
wall seconds where other programs use the machine. The light commands are measured as well.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.earlier import code_of
from benchmarks.jobs import ROOT, in_turn
from benchmarks.output import add_output_option, console, results_table, write_results

CONFIG = "deployments/configs/demo.toml"
GOAL_S = 10.0
"""Wall seconds to the first step, on two quiet cores."""
LIGHT_GOAL_S = 0.3
"""CPU seconds of a light command."""
LOOK_EVERY_S = 0.02
PATIENCE_S = 300.0
ENDED_S = 20.0
"""For the server to see that nobody wants it any more."""
PARTS = {
    "mortal.server.process": "server",
    "rewards.worker": "reward worker",
    "compute.forkserver": "imports and workers",
    "hosts.inside": "reward host",
    "compute.container": "reward worker",  # of earlier code
}
"""What a process is for, by what its command line holds; any other one is the command's own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """One start of the demo."""

    code: str
    state: str
    """cold or warm."""
    wall_s: float
    cpu_s: dict[str, float]
    """By part."""

    @property
    def total_s(self) -> float:
        """CPU seconds of all processes."""
        return sum(self.cpu_s.values())


def main() -> None:
    """Measure in turn, print the tables, write the results."""
    args = _parse()
    starts: list[Start] = []
    with contextlib.ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="startup-")))
        codes = {"now": ROOT}
        if args.before:
            codes["before"] = held.enter_context(code_of(args.before, folder))
        for number in range(args.rounds):
            for name in in_turn(list(codes), number):
                place = folder / f"{name}-{number}"
                for state in ("cold", "warm"):
                    starts.append(_start(name, codes[name], place, state))
                    console.print(f"{name:6} {state}  {_line(starts[-1])}")
                light = place / "runs"
        commands = {
            "mortal --help": ["--help"],
            "mortal train --help": ["train", "--help"],
            "mortal runs": ["runs", "--runs-dir", str(light)],
            "mortal show RUN": ["show", "cold", "--runs-dir", str(light)],
        }
        lights = {
            f"{name}: {shown}": min(_cpu_of(code, command) for _ in range(args.rounds))
            for name, code in codes.items()
            for shown, command in commands.items()
        }
    _print_report(starts, lights)
    write_results(args.output, {"starts": starts, "light_cpu_s": lights})


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--before", metavar="COMMIT", help="measure its code, too")
    add_output_option(parser, "startup")
    return parser.parse_args()


def _environment(code: Path, place: Path) -> dict[str, str]:
    place.mkdir(exist_ok=True)
    own = {"MORTAL_STATE_DIR": str(place / "state"), "PYTHONPATH": str(code), "HF_HUB_OFFLINE": "1"}
    inherited = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    return {**inherited, **own}


def _start(name: str, code: Path, place: Path, state: str) -> Start:
    """Start the demo; its run is named after the `state`."""
    if state == "cold":
        shutil.rmtree(place, ignore_errors=True)
    environment = _environment(code, place)
    command = [sys.executable, "-m", "mortal", "train", CONFIG]
    command += ["--runs-dir", str(place / "runs"), "--run-id", state]
    result = place / "runs" / state / "steps" / "000000" / "result.json"
    began = time.monotonic()
    with (place / f"{state}.log").open("w") as log:
        train = psutil.Popen(command, cwd=code, env=environment, stdout=log, stderr=log)
    seen: dict[psutil.Process, tuple[str, float]] = {}
    while not result.exists():
        _look(train, seen)
        if train.poll() is not None or time.monotonic() > began + PATIENCE_S:
            raise SystemExit((place / f"{state}.log").read_text() + "\nthere is no first step")
        time.sleep(LOOK_EVERY_S)
    wall_s = time.monotonic() - began
    _look(train, seen)
    train.kill()
    psutil.wait_procs([train, *seen], timeout=ENDED_S)
    cpu_s = dict.fromkeys(["command", *PARTS.values()], 0.0)
    for part, seconds in seen.values():
        cpu_s[part] += seconds
    return Start(code=name, state=state, wall_s=wall_s, cpu_s=cpu_s)


def _look(train: psutil.Process, seen: dict[psutil.Process, tuple[str, float]]) -> None:
    """Note the CPU seconds that each process below the command has used so far."""
    for process in (train, *train.children(recursive=True)):
        with contextlib.suppress(psutil.Error):  # it has just ended
            times = process.cpu_times()
            line = " ".join(process.cmdline())
            part = next((part for word, part in PARTS.items() if word in line), "command")
            seen[process] = (part, times.user + times.system)


def _cpu_of(code: Path, arguments: Sequence[str]) -> float:
    """CPU seconds of one command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "mortal", *arguments],
        check=True,
        cwd=code,
        env={**os.environ, "PYTHONPATH": str(code)},
        stdout=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _line(start: Start) -> str:
    parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in start.cpu_s.items())
    return f"{start.wall_s:5.1f} s  {start.total_s:5.1f} s CPU ({parts})"


def _print_report(starts: Sequence[Start], lights: dict[str, float]) -> None:
    table = results_table(
        f"`mortal train {CONFIG}` to its first step (goal: {GOAL_S:g} s on two quiet cores)",
        *("code", "state", "wall", "CPU", *starts[0].cpu_s),
        left=("code", "state"),
    )
    for code, state in dict.fromkeys((start.code, start.state) for start in starts):
        of = [start for start in starts if (start.code, start.state) == (code, state)]
        medians = [
            statistics.median(start.wall_s for start in of),
            statistics.median(start.total_s for start in of),
            *(statistics.median(start.cpu_s[part] for start in of) for part in of[0].cpu_s),
        ]
        table.add_row(code, state, *(f"{seconds:.1f} s" for seconds in medians))
    console.print(table)
    light = results_table(f"CPU of light commands (goal: {LIGHT_GOAL_S:g} s)", "command", "CPU")
    for name, seconds in lights.items():
        light.add_row(name, f"{seconds:.2f} s")
    console.print(light)


if __name__ == "__main__":
    main()
