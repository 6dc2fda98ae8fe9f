"""How long a killed run takes to come back, early and late in its life.

    python -m benchmarks.resume_time                  # at step 20 and at step 500, five times each
    python -m benchmarks.resume_time --steps 20 500 2000 --rounds 3

One run is killed by SIGKILL at each of the steps, where it has just made a checkpoint, and copied.
`mortal resume` then starts from each copy in turn. A repetition counts from the start of that
process to the first new record of the step that it goes on with, all of Python, Prefect, torch and
the model included. The Prefect server runs all the time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.jobs import ROOT, in_turn
from benchmarks.output import add_output_option, console, results_table, write_results
from benchmarks.server import own_server
from mortal_steps.errors import RunNotFoundError
from mortal_steps.runs.lease import acquire
from mortal_steps.runs.run import find_run
from mortal_steps.store import RunStore

CONFIG = ROOT / "benchmarks" / "overhead" / "tiny.toml"
RUN_ID = "resumed"
GOAL = 1.2
"""Times the first step's median that a later one may take."""
PATIENCE_S = 120.0
"""For one return."""
TRAINING_S = 3600.0
"""For the run to get from one step where it is killed to the next."""
SETTLE_S = 2.0
"""Between two repetitions, for the server to write down what it was told."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """The run as it was when it was killed."""

    step: int
    """Train steps done."""
    num_files: int
    """Files of the run directory."""
    folder: Path
    """`run` and `results`, what Prefect has cached of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Return:
    """One repetition."""

    step: int
    round: int
    seconds: float
    """From the start of `mortal resume` to the first new record."""
    cpu_s: float
    """CPU time of its process and its workers in that time; other load on the machine matters less
    for it."""
    record: str
    """Which record that was."""


class Bench:
    """The one run of this benchmark, and its places."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._runs = folder / "runs"
        self._results = Path(os.environ["PREFECT_RESULTS_LOCAL_STORAGE_PATH"])
        self._store = RunStore(self._runs / RUN_ID)

    def keep(self, steps: Sequence[int]) -> list[Kept]:
        """Train, be killed at each of the steps, keep a copy."""
        train = [
            *("train", str(CONFIG), "--run-id", RUN_ID),
            *("--set", f"training.max_steps={max(steps) + 100}"),
            *("--set", "evaluation.eval_steps=0"),
            *("--set", "rollout.num_rollout_workers=1"),
            *("--set", f"checkpoints.save_steps={min(steps)}"),
        ]
        kept: list[Kept] = []
        for step in steps:
            kept.append(self._killed_at(step, ["resume", RUN_ID] if kept else train))
            console.print(f"killed and copied at step {kept[-1].step}")
        return kept

    def come_back(self, kept: Kept, number: int) -> Return:
        """Put the copy in place, resume it, and kill it at its first new record."""
        shutil.rmtree(self._store.root)
        shutil.rmtree(self._results)
        shutil.copytree(kept.folder / "run", self._store.root)
        shutil.copytree(kept.folder / "results", self._results)
        time.sleep(SETTLE_S)
        known = set(self._records(kept.step))
        new: set[Path] = set()

        def come() -> bool:
            new.update(set(self._records(kept.step)) - known)
            return bool(new)

        began = time.time()
        with self._mortal("resume", RUN_ID) as process:
            self._wait_for(process, come)
            cpu_s = _cpu_s(process.pid)
        first = min(new, key=lambda path: path.stat().st_mtime)
        return Return(
            step=kept.step,
            round=number,
            seconds=first.stat().st_mtime - began,
            cpu_s=cpu_s,
            record=str(first.relative_to(self._store.root)),
        )

    def _killed_at(self, step: int, command: Sequence[str]) -> Kept:
        with self._mortal(*command) as process:
            self._wait_for(process, lambda: self._step_done() >= step, TRAINING_S)
        return self._copy(self._folder / f"at-{step}")

    @contextmanager
    def _mortal(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Yield the command in the background; killed with its workers at the end of the block."""
        command = [sys.executable, "-m", "mortal", *arguments, "--runs-dir", str(self._runs)]
        with (self._folder / "mortal.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            if self._store.root.exists():
                acquire(self._store).release()  # when the last of the workers is gone

    def _wait_for(
        self,
        process: subprocess.Popen[bytes],
        come: Callable[[], bool],
        patience_s: float = PATIENCE_S,
    ) -> None:
        deadline = time.monotonic() + patience_s
        while not come():
            if process.poll() is not None or time.monotonic() > deadline:
                log = (self._folder / "mortal.log").read_text(errors="replace")
                raise SystemExit(f"{log}\nthe run ended, or took {patience_s:g} s")
            time.sleep(0.005)

    def _step_done(self) -> int:
        try:
            return find_run(self._runs, RUN_ID).manifest.step
        except RunNotFoundError:
            return 0  # not there yet

    def _records(self, step: int) -> Iterator[Path]:
        """Those of the step that a run goes on with, and of the next."""
        for number in (step, step + 1):
            yield from self._store.path(f"steps/{number:06d}").glob("[!.]*.*")

    def _copy(self, folder: Path) -> Kept:
        shutil.copytree(self._store.root, folder / "run")
        shutil.copytree(self._results, folder / "results")
        num_files = sum(path.is_file() for path in folder.glob("run/**/*"))
        return Kept(step=self._step_done(), num_files=num_files, folder=folder)


def main() -> None:
    args = _parse()
    os.chdir(ROOT)  # the configuration names its data from here
    with tempfile.TemporaryDirectory(prefix="resume-") as name, own_server(Path(name)):
        bench = Bench(Path(name))
        kept = bench.keep(args.steps)
        returns: list[Return] = []
        for number in range(args.rounds):
            for each in in_turn(kept, number):
                returns.append(bench.come_back(each, number))
                console.print(_line(returns[-1]))
    ratio = _print_report(kept, returns)
    write_results(
        args.output,
        {
            "ratio": ratio,
            "kept": [{"step": each.step, "num_files": each.num_files} for each in kept],
            "returns": returns,
        },
    )
    sys.exit(0 if ratio <= GOAL else 1)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.resume_time",
        description="How long a killed run takes to come back, early and late in its life.",
    )
    parser.add_argument(
        "--steps", type=int, nargs="+", default=[20, 500], help="where it is killed"
    )
    parser.add_argument("--rounds", type=int, default=5, help="returns from each of them")
    add_output_option(parser, "resume_time")
    args = parser.parse_args()
    args.steps.sort()
    if args.steps[0] < 1 or any(step % args.steps[0] for step in args.steps):
        parser.error("--steps must be multiples of the first, where the run makes its checkpoints")
    return args


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process and of those that it started and that still run."""
    process = psutil.Process(pid)
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


def _line(of: Return) -> str:
    return (
        f"round {of.round}  step {of.step:4}  {of.seconds:6.2f} s  {of.cpu_s:6.2f} s CPU  "
        f"to {of.record}"
    )


def _print_report(kept: Sequence[Kept], returns: Sequence[Return]) -> float:
    """Return the table; returns how many times the earliest step's median the latest one's is."""
    table = results_table(
        "`mortal resume` to the first new record",
        *("killed at step", "files", "median", "lowest", "highest", "ratio", "CPU", "ratio"),
    )
    first_s, first_cpu_s = _medians(returns, kept[0].step)
    for each in kept:
        median_s, cpu_s = _medians(returns, each.step)
        walls = [back.seconds for back in returns if back.step == each.step]
        ratio = median_s / first_s
        table.add_row(
            str(each.step),
            f"{each.num_files:,}",
            f"{median_s:.2f} s",
            f"{min(walls):.2f} s",
            f"{max(walls):.2f} s",
            f"{ratio:.2f}",
            f"{cpu_s:.2f} s",
            f"{cpu_s / first_cpu_s:.2f}",
        )
    console.print()
    console.print(table)
    console.print(f"goal: a ratio of {GOAL:g} or less; {'met' if ratio <= GOAL else 'NOT MET'}")
    return ratio


def _medians(returns: Sequence[Return], step: int) -> tuple[float, float]:
    """Wall and CPU seconds of the returns to a step."""
    of = [back for back in returns if back.step == step]
    return statistics.median(b.seconds for b in of), statistics.median(b.cpu_s for b in of)


if __name__ == "__main__":
    main()
