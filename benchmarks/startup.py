"""From `mortal train` to its first train step: wall and CPU seconds, process by process.

    python -m benchmarks.startup                    # three rounds, five minutes

Each round starts the demo twice: cold, with no state directory and no runs, and warm, with both
there. The run is killed when the result of its first step is committed. CPU seconds mean more than
wall seconds where other programs use the machine. The light commands are measured as well.
"""

import contextlib
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.jobs import ROOT
from benchmarks.output import command_line, console, folder_for, results_table, write_results

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
}
"""What a process is for, by what its command line holds; any other one is the command's own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """One start of the demo."""

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
    parser = command_line("startup", __doc__)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    starts: list[Start] = []
    with folder_for("startup") as folder:
        for _ in range(args.rounds):
            for state in ("cold", "warm"):
                starts.append(_start(folder, state))
                console.print(f"{state}  {_line(starts[-1])}")
        runs_dir = ["--runs-dir", str(folder / "runs")]
        commands = {
            "mortal --help": ["--help"],
            "mortal train --help": ["train", "--help"],
            "mortal runs": ["runs", *runs_dir],
            "mortal show RUN": ["show", "cold", *runs_dir],
        }
        lights = {
            shown: min(_cpu_of(command) for _ in range(args.rounds))
            for shown, command in commands.items()
        }
    _print_report(starts, lights)
    write_results(args.output, {"starts": starts, "light_cpu_s": lights})


def _start(folder: Path, state: str) -> Start:
    """Start the demo; its run is named after the `state`."""
    if state == "cold":
        shutil.rmtree(folder)
        folder.mkdir()
    inherited = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    own = {"MORTAL_STATE_DIR": str(folder / "state"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "mortal", "train", CONFIG]
    command += ["--runs-dir", str(folder / "runs"), "--run-id", state]
    result = folder / "runs" / state / "steps" / "000000" / "result.json"
    began = time.monotonic()
    with (folder / f"{state}.log").open("w") as log:
        train = psutil.Popen(command, cwd=ROOT, env=inherited | own, stdout=log, stderr=log)
    seen: dict[psutil.Process, tuple[str, float]] = {}
    while not result.exists():
        _look(train, seen)
        if train.poll() is not None or time.monotonic() > began + PATIENCE_S:
            raise SystemExit((folder / f"{state}.log").read_text() + "\nthere is no first step")
        time.sleep(LOOK_EVERY_S)
    wall_s = time.monotonic() - began
    _look(train, seen)
    train.kill()
    psutil.wait_procs([train, *seen], timeout=ENDED_S)
    cpu_s = dict.fromkeys(["command", *PARTS.values()], 0.0)
    for part, seconds in seen.values():
        cpu_s[part] += seconds
    return Start(state=state, wall_s=wall_s, cpu_s=cpu_s)


def _look(train: psutil.Process, seen: dict[psutil.Process, tuple[str, float]]) -> None:
    """Note the CPU seconds that each process below the command has used so far."""
    for process in (train, *train.children(recursive=True)):
        with contextlib.suppress(psutil.Error):  # it has just ended
            times = process.cpu_times()
            line = " ".join(process.cmdline())
            part = next((part for word, part in PARTS.items() if word in line), "command")
            seen[process] = (part, times.user + times.system)


def _cpu_of(arguments: Sequence[str]) -> float:
    """CPU seconds of one command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "mortal", *arguments],
        check=True,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _line(start: Start) -> str:
    parts = ", ".join(f"{part} {seconds:.1f}" for part, seconds in start.cpu_s.items())
    return f"{start.wall_s:5.1f} s  {start.total_s:5.1f} s CPU ({parts})"


def _print_report(starts: Sequence[Start], lights: dict[str, float]) -> None:
    rows = []
    for state in ("cold", "warm"):
        took = [
            {"wall": start.wall_s, "CPU": start.total_s, **start.cpu_s}
            for start in starts
            if start.state == state
        ]
        medians = {name: statistics.median(each[name] for each in took) for name in took[0]}
        rows.append({"state": state, **{name: f"{s:.1f} s" for name, s in medians.items()}})
    title = f"`mortal train {CONFIG}` to its first step (goal: {GOAL_S:g} s on two quiet cores)"
    console.print(results_table(title, rows, left=("state",)))
    light = [{"command": name, "CPU": f"{seconds:.2f} s"} for name, seconds in lights.items()]
    console.print(results_table(f"CPU of light commands (goal: {LIGHT_GOAL_S:g} s)", light))


if __name__ == "__main__":
    main()
