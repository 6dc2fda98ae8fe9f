"""Seconds from trained weights to a worker that samples with them, beside a plain write and read.

    python -m benchmarks.weights                             # 0.09, 0.5 and 1.5 billion parameters
    python -m benchmarks.weights --sizes 0.5 --methods reload --before main
    python -m benchmarks.weights --engine vllm --python .venv-vllm/bin/python

In each round, an actor's process writes as many bytes as the model has to a plain file and reads
them again, publishes a version, and a rollout worker in another process loads and verifies it. What
both spend on the canary's forward pass is left out and told beside. `until sampling` is all of it,
canary included: the time until a token may be sampled. `meanwhile` is what the actor still has to
write or sync then, beside other work. The files lie on the local disk and in /dev/shm; they are in
the page cache when they are read, as in a run.

`times` is of a plain write and read; `floor` is the same of what cannot be left out, each part
measured alone in the same round: a write, a read and the hash of what the engine holds (the actor
hashes beside the write). `direct` writes to shared memory, wherever the run's other files lie.

Passes: bytes given to `write` and got from `read`, as multiples of the model. A worker also loads
from the mapped file, which is no read. `worker GB`: its own memory once it has loaded, and the most
that it ever had, with what it shares with the actor or the page cache.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import psutil

from benchmarks.earlier import code_of
from benchmarks.jobs import ROOT
from benchmarks.output import add_output_option, console, results_table, write_results
from mortal_steps.config.rollout import DIRECT, WEIGHT_SYNC

SIZES = (0.09, 0.5, 1.5)
METHODS = tuple(WEIGHT_SYNC)
PLACES = ("disk", "/dev/shm")
GOAL = 1.5
"""Times a plain write and a plain read together."""
HELD = 3.5
"""Times the bytes of a model in two processes: the model in each, and a copy to measure copies."""
IN_SHARED_MEMORY = 2.0
"""Times the bytes of a model that a method keeps in /dev/shm beside that."""

Round = Mapping[str, Any]


def main() -> None:
    args = _parse()
    rounds: list[Round] = []
    with contextlib.ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="weights-")))
        codes: dict[str, Path] = {"now": ROOT}
        if args.before:
            codes["before"] = held.enter_context(code_of(args.before, folder))
        for size, place in product(args.sizes, args.places):
            for name, code in codes.items():
                methods = [m for m in args.methods if _fits(m, size, place)]
                if not methods:
                    continue
                with _place(place, folder) as here:
                    found = _measure(args, size, methods, here, code)
                rounds += [{"code": name, "size": size, "place": place, **row} for row in found]
                console.print(_line(size, place, name, found))
    _print_report(rounds)
    write_results(args.output, {"goal": GOAL, "rounds": rounds})


def _fits(method: str, size: float, place: str) -> bool:
    """Whether this machine has the memory; says so where it does not, for the system would kill."""
    shared = method == DIRECT or place != "disk"
    needed = size * 4e9 * (HELD + IN_SHARED_MEMORY * shared)
    free = psutil.virtual_memory().available
    if free < needed:
        console.print(
            f"{size}B, {method}, in {place}: left out, for it needs {needed / 1e9:.0f} GB of "
            f"memory, and {free / 1e9:.0f} are free"
        )
    return free >= needed


def ratio(row: Round) -> float:
    """Publish, load and verify as a multiple of a plain write and read in the same round."""
    spent: float = row["publish_s"] + row["load_s"]
    return spent / _plain_s(row)


def floor(row: Round) -> float:
    """What of it cannot be left out, as the same multiple."""
    plain, hashed = _plain_s(row), float(row["plain_hash_s"])
    return (plain + hashed) / plain


def _plain_s(row: Round) -> float:
    return float(row["plain_write_s"] + row["plain_read_s"])


def cpu_ratio(row: Round) -> float:
    """The same of CPU seconds."""
    spent: float = row["publish_cpu_s"] + row["load_cpu_s"]
    return spent / (row["plain_write_cpu_s"] + row["plain_read_cpu_s"])


def until_sampling_s(row: Round) -> float:
    """Seconds from trained weights until a token may be sampled with them."""
    seconds: float = row["publish_s"] + row["load_s"] + _canary_s(row)
    return seconds


def _canary_s(row: Round) -> float:
    """Seconds of both forward passes of the probe."""
    seconds: float = row["score_s"] + row["canary_s"]
    return seconds


def _measure(
    args: argparse.Namespace, size: float, methods: Sequence[str], here: Path, code: Path
) -> list[Round]:
    job = {
        "size": size,
        "place": str(here),
        "methods": methods,
        "rounds": args.rounds,
        "engine": args.engine,
        "python": args.python,
        "threads": args.threads,
        "output": str(here / "rounds.json"),
    }
    env = {**os.environ, "PYTHONPATH": str(code), "OMP_NUM_THREADS": str(args.threads)}
    script = Path(__file__).with_name("measured.py")
    subprocess.run([sys.executable, str(script), json.dumps(job)], check=True, env=env, cwd=here)
    found: list[Round] = json.loads((here / "rounds.json").read_text())
    return found


@contextlib.contextmanager
def _place(place: str, folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=folder if place == "disk" else place) as name:
        yield Path(name)


def _line(size: float, place: str, code: str, rows: Sequence[Round]) -> str:
    methods = dict.fromkeys(row["method"] for row in rows)
    ratios = (
        f"{method} {statistics.median(ratio(r) for r in rows if r['method'] == method):.2f} times"
        for method in methods
    )
    return f"{size}B in {place}, {code}: {', '.join(ratios)}"


def _print_report(rounds: Sequence[Round]) -> None:
    headings = (
        "publish",
        "load + verify",
        "canary",
        "until sampling",
        "meanwhile",
        "copy",
        "hash",
        "write + read",
        "times",
        "floor",
        "CPU",
    )
    table = results_table(
        "seconds of a version, medians of the rounds",
        *("model", "place", "code", "method", *headings, "written", "read", "worker GB"),
        left=("place", "code", "method"),
    )
    keys = list(dict.fromkeys((r["size"], r["place"], r["code"], r["method"]) for r in rounds))
    for key in keys:
        rows = [r for r in rounds if (r["size"], r["place"], r["code"], r["method"]) == key]
        size, place, code, method = key
        plain = [r["plain_write_s"] + r["plain_read_s"] for r in rows]
        table.add_row(
            f"{size}B",
            place,
            code,
            method,
            *(f"{_median(rows, name):.3f}" for name in ("publish_s", "load_s")),
            f"{statistics.median(map(_canary_s, rows)):.3f}",
            f"{statistics.median(map(until_sampling_s, rows)):.3f}",
            *(
                f"{_median(rows, name):.3f}"
                for name in ("settle_s", "plain_copy_s", "plain_hash_s")
            ),
            f"{statistics.median(plain):.3f}",
            f"{statistics.median(map(ratio, rows)):.2f} (from {min(map(ratio, rows)):.2f})",
            f"{statistics.median(map(floor, rows)):.2f}",
            f"{statistics.median(map(cpu_ratio, rows)):.2f}",
            f"{_passes(rows, 'publish_written'):.1f}",
            f"{_passes(rows, 'publish_read'):.1f} + {_passes(rows, 'load_read'):.1f}",
            f"{_median(rows, 'own_bytes') / 1e9:.1f} {_median(rows, 'peak_bytes') / 1e9:.1f}",
        )
    console.print(table)
    console.print(f"goal: {GOAL} times a plain write and a plain read")


def _median(rows: Iterable[Round], name: str) -> float:
    return statistics.median(row[name] for row in rows)


def _passes(rows: Iterable[Round], name: str) -> float:
    return statistics.median(row[name] / row["num_bytes"] for row in rows)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=float, nargs="+", default=SIZES, metavar="BILLIONS")
    parser.add_argument("--places", nargs="+", default=PLACES, metavar="FOLDER", help="or `disk`")
    parser.add_argument("--methods", nargs="+", default=METHODS, metavar="WEIGHT_SYNC")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each process")
    parser.add_argument("--engine", default="transformers")
    parser.add_argument("--python", default=sys.executable, help="of the rollout worker")
    parser.add_argument("--before", metavar="COMMIT", help="measure its code, too")
    add_output_option(parser, "weights")
    return parser.parse_args()


if __name__ == "__main__":
    main()
