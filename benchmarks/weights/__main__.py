"""Seconds from trained weights to a worker that samples with them, beside a plain write and read.

    python -m benchmarks.weights                             # 0.09, 0.5 and 1.5 billion parameters
    python -m benchmarks.weights --sizes 0.5 --methods reload --rank 16   # a LoRA adapter
    python -m benchmarks.weights --engine vllm --python .venv-vllm/bin/python

In each round, an actor's process writes as many bytes as the model has to a plain file and reads
them again, publishes a version, and a rollout worker in another process loads and verifies it. What
both spend on the canary's forward pass has a column of its own. `until sampling` is all of it,
canary included: the time until a token may be sampled. `meanwhile` is what the actor still has to
write or sync then, beside other work. The files lie on the local disk and in /dev/shm; they are in
the page cache when they are read, as in a run.

`times` is of a plain write and read. `direct` writes to shared memory, wherever the run's other
files lie. Of an adapter, both are of its own bytes.

Passes: bytes given to `write` and got from `read`, as multiples of these. A worker also loads
from the mapped file, which is no read. `worker GB`: its own memory once it has loaded, and the most
that it ever had, with what it shares with the actor or the page cache.
"""

import argparse
import os
import shutil
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import psutil

from benchmarks.jobs import ask
from benchmarks.output import command_line, console, folder_for, results_table, write_results
from mortal_steps.rollout.weight_sync.table import DIRECT, WEIGHT_SYNC

SIZES = (0.09, 0.5, 1.5)
METHODS = tuple(WEIGHT_SYNC)
PLACES = ("disk", "/dev/shm")
GOAL = 1.5
"""Times a plain write and a plain read together."""
IN_MEMORY = 2.5
"""Times the bytes of a model in two processes."""
IN_SHARED_MEMORY = 2.0
"""Times the bytes of a model that a method keeps in /dev/shm beside that."""

Round = Mapping[str, Any]


def main() -> None:
    args = _parse()
    rounds: list[Round] = []
    for size, place in product(args.sizes, args.places):
        methods = [method for method in args.methods if _fits(method, size, place)]
        if not methods:
            continue
        with folder_for("weights", within=None if place == "disk" else Path(place)) as folder:
            found = _measure(args, size, methods, folder)
        rounds += [{"size": size, "place": place, **row} for row in found]
        console.print(_line(size, place, found))
    _print_report(rounds)
    write_results(args.output, {"goal": GOAL, "rounds": rounds})


def _fits(method: str, size: float, place: str) -> bool:
    """Whether this machine has the memory; says so where it does not, for the system would kill."""
    shared = method == DIRECT or place != "disk"
    needed = size * 4e9 * (IN_MEMORY + IN_SHARED_MEMORY * shared)
    free = psutil.virtual_memory().available
    if free < needed:
        console.print(
            f"{size}B, {method}, in {place}: left out, for it needs {needed / 1e9:.0f} GB of "
            f"memory, and {free / 1e9:.0f} are free"
        )
    return free >= needed


def _with_sums(row: Round) -> Round:
    """Return a round with what its columns come to: `times` is publish, load and verify as a
    multiple of a plain write and read, `cpu_times` the same of CPU seconds."""
    spent, plain = row["publish_s"] + row["load_s"], row["plain_write_s"] + row["plain_read_s"]
    cpu_s = row["publish_cpu_s"] + row["load_cpu_s"]
    canary = row["score_s"] + row["canary_s"]
    return {
        **row,
        "plain_s": plain,
        "both_canaries_s": canary,
        "until_sampling_s": spent + canary,
        "times": spent / plain,
        "cpu_times": cpu_s / (row["plain_write_cpu_s"] + row["plain_read_cpu_s"]),
    }


def _measure(
    args: argparse.Namespace, size: float, methods: Sequence[str], folder: Path
) -> list[Round]:
    job = {
        "size": size,
        "dtype": "float32",
        "folder": str(folder),
        "rank": args.rank,
        "methods": methods,
        "rounds": args.rounds,
        "engine": args.engine,
        "engine_options": {},
        "canary_tolerance": 1e-2,
        "worker_python": str(Path(shutil.which(args.python) or args.python).absolute()),
        "threads": args.threads,
    }
    threads = {"OMP_NUM_THREADS": str(args.threads)}
    found = ask("weights.measured:measure", job, variables=threads)
    return [_with_sums(row) for row in found]


def _line(size: float, place: str, rows: Sequence[Round]) -> str:
    methods = dict.fromkeys(row["method"] for row in rows)
    ratios = (
        f"{method} {_median([r for r in rows if r['method'] == method], 'times'):.2f} times"
        for method in methods
    )
    return f"{size}B in {place}: {', '.join(ratios)}"


def _print_report(rounds: Sequence[Round]) -> None:
    groups: dict[tuple[float, str, str], list[Round]] = {}
    for each in rounds:
        groups.setdefault((each["size"], each["place"], each["method"]), []).append(each)
    title = "seconds of a version, medians of the rounds"
    rows = [_row(*key, mine) for key, mine in groups.items()]
    console.print(results_table(title, rows, left=("place", "method")))
    console.print(f"goal: {GOAL} times a plain write and a plain read")


def _row(size: float, place: str, method: str, rows: Sequence[Round]) -> dict[str, str]:
    return {
        "model": f"{size}B",
        "place": place,
        "method": method,
        "publish": f"{_median(rows, 'publish_s'):.3f}",
        "load + verify": f"{_median(rows, 'load_s'):.3f}",
        "canary": f"{_median(rows, 'both_canaries_s'):.3f}",
        "until sampling": f"{_median(rows, 'until_sampling_s'):.3f}",
        "meanwhile": f"{_median(rows, 'settle_s'):.3f}",
        "write + read": f"{_median(rows, 'plain_s'):.3f}",
        "times": f"{_median(rows, 'times'):.2f} (from {min(row['times'] for row in rows):.2f})",
        "CPU": f"{_median(rows, 'cpu_times'):.2f}",
        "written": f"{_passes(rows, 'publish_written'):.1f}",
        "read": f"{_passes(rows, 'publish_read'):.1f} + {_passes(rows, 'load_read'):.1f}",
        "worker GB": f"{_median(rows, 'own_bytes') / 1e9:.1f} "
        f"{_median(rows, 'peak_bytes') / 1e9:.1f}",
    }


def _median(rows: Iterable[Round], name: str) -> float:
    return statistics.median(row[name] for row in rows)


def _passes(rows: Iterable[Round], name: str) -> float:
    return statistics.median(row[name] / row["num_bytes"] for row in rows)


def _parse() -> argparse.Namespace:
    parser = command_line("weights", __doc__)
    parser.add_argument("--sizes", type=float, nargs="+", default=SIZES, metavar="BILLIONS")
    parser.add_argument("--places", nargs="+", default=PLACES, metavar="FOLDER", help="or `disk`")
    parser.add_argument("--methods", nargs="+", default=METHODS, metavar="WEIGHT_SYNC")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each process")
    parser.add_argument("--engine", default="transformers")
    parser.add_argument("--python", default=sys.executable, help="of the rollout worker")
    parser.add_argument("--rank", type=int, default=0, help="of a LoRA adapter to sync instead")
    return parser.parse_args()


if __name__ == "__main__":
    main()
