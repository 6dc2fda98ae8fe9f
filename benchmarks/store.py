"""What a shard of completions costs on disk, in CPU time and in memory: as columns and as JSON.

    python -m benchmarks.store                        # 512 completions of 2,048 tokens
    python -m benchmarks.store --completions 64 --tokens 1024 --rounds 5

Both forms of the record are written, checked and read in turn, each time in a process of its own
with the environment of a worker, which has done so with a small shard before. Memory is how far its
peak then rises above what it held. CPU time, of the whole process, is the median of seven more
times: workers live long.

The completions are made up: tokens of a vocabulary of 150,000 as frequent as words are, each a word
of the text, log-probabilities in float32 as engines give them, eight completions a problem.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy

from benchmarks.jobs import ROOT, in_turn
from benchmarks.output import add_output_option, console, results_table, write_results
from mortal_steps.compute.local_container import ENVIRONMENT
from mortal_steps.store import RunStore
from mortal_steps.types import (
    Completion,
    FileRef,
    GeneratedGroup,
    GeneratedShard,
    PolicyVersion,
    Problem,
)

FORMS = {"JSON": "generations-0.json", "columns": "generations-0.parquet"}
DEEDS = ("write", "check", "read")
SMALLER, FASTER = 4, 5
"""Goals: times smaller than JSON, times less CPU to write and to read."""
GROUP = 8
REPEATS = 7
VOCABULARY = 150_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Of one deed, in one process."""

    form: str
    deed: str
    cpu_s: float
    """Median of `REPEATS`."""
    peak_mb: float
    """Above what the process held before, in 10^6 bytes."""
    num_bytes: int
    sha256: str
    """Of the record."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What a process is asked to measure."""

    form: str
    deed: str
    completions: int
    tokens: int
    folder: str
    sha256: str = ""
    """Of the record to check or to read."""


def made_up(num_completions: int, num_tokens: int) -> GeneratedShard:
    """A shard, the same one every time."""
    source = numpy.random.default_rng(0)
    letters = random.Random(0)
    words = ["".join(letters.choices("etaoinshrdlu", k=letters.randint(2, 7))) for _ in range(5000)]

    def completion(seed: int) -> Completion:
        token_ids = (source.zipf(1.3, size=num_tokens) % VOCABULARY).tolist()
        surprise = source.exponential(1.0, size=num_tokens) ** 3 * 0.3
        return Completion(
            token_ids=token_ids,
            logprobs=(-surprise).astype(numpy.float32).astype(numpy.float64).tolist(),
            text=" ".join(words[token % len(words)] for token in token_ids),
            finish_reason="length",
            seed=seed,
            policy_version=PolicyVersion(12),
        )

    groups = [
        GeneratedGroup(
            problem=Problem(
                id=f"train-{number}", prompt="What is it? " * 20, columns={"answer": 1}
            ),
            prompt_ids=list(range(100)),
            completions=[completion(letters.getrandbits(63)) for _ in range(GROUP)],
        )
        for number in range(num_completions // GROUP)
    ]
    return GeneratedShard(step=12, shard=0, policy_version=PolicyVersion(12), groups=groups)


def measure(job: Job) -> Cost:
    """Do it, in this process; `check` and `read` find what `write` left in the folder."""
    name, store = FORMS[job.form], RunStore(Path(job.folder))
    warm = RunStore(Path(job.folder) / "warm")
    warm.read_record(warm.write_record(name, made_up(GROUP, 16), GeneratedShard), GeneratedShard)
    ref = FileRef(path=name, sha256=job.sha256)
    shard = made_up(job.completions, job.tokens) if job.deed == "write" else None

    def do() -> FileRef:
        if shard is not None:
            return store.write_record(name, shard, GeneratedShard)
        if job.deed == "check":
            store.check_record(ref)
        else:
            store.read_record(ref, GeneratedShard)
        return ref

    held = _held()
    ref = do()
    peak, seconds = _status("VmHWM"), []
    for _ in range(REPEATS):
        began = time.process_time()
        do()
        seconds.append(time.process_time() - began)
    return Cost(
        form=job.form,
        deed=job.deed,
        cpu_s=statistics.median(seconds),
        peak_mb=(peak - held) / 1e6,
        num_bytes=store.path(name).stat().st_size,
        sha256=ref.sha256,
    )


def _held() -> int:
    """Bytes that this process holds, from which its peak is counted anew."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


def main() -> None:
    args = _parse()
    costs: list[Cost] = []
    for number in range(args.rounds):
        for form in in_turn(tuple(FORMS), number):
            costs += _round(form, args.completions, args.tokens)
    title = f"{args.completions} completions x {args.tokens:,} tokens, {args.rounds} rounds"
    num_tokens = args.completions * args.tokens
    columns = ("form", "MB", "bytes/token", *(f"{deed}, CPU s" for deed in DEEDS))
    table = results_table(title, *columns, *(f"{deed}, peak MB" for deed in DEEDS), left=["form"])
    for form in FORMS:
        size = _median(costs, form, "write", "num_bytes")
        seconds = [f"{_median(costs, form, deed, 'cpu_s'):.3f}" for deed in DEEDS]
        peaks = [f"{_median(costs, form, deed, 'peak_mb'):.0f}" for deed in DEEDS]
        table.add_row(form, f"{size / 1e6:.2f}", f"{size / num_tokens:.2f}", *seconds, *peaks)
    console.print(table)
    times = {"smaller": _times(costs, "write", "num_bytes")}
    times |= {f"less CPU to {deed}": _times(costs, deed, "cpu_s") for deed in DEEDS}
    console.print(", ".join(f"{value:.1f} x {what}" for what, value in times.items()))
    goals = {"smaller": SMALLER, "less CPU to write": FASTER, "less CPU to read": FASTER}
    missed = [what for what, goal in goals.items() if times[what] < goal]
    console.print(f"goal missed: {', '.join(missed)}" if missed else f"goals met: {goals}")
    write_results(
        args.output, {"arguments": vars(args) | {"output": None}, "times": times, "costs": costs}
    )


def _round(form: str, completions: int, tokens: int) -> Sequence[Cost]:
    """Write, check and read, each in a process of its own."""
    found: list[Cost] = []
    with tempfile.TemporaryDirectory(prefix="store-") as folder:
        for deed in DEEDS:
            job = Job(
                form=form,
                deed=deed,
                completions=completions,
                tokens=tokens,
                folder=folder,
                sha256=found[0].sha256 if found else "",
            )
            command = [sys.executable, "-m", "benchmarks.store", "--job", json.dumps(asdict(job))]
            env = {**ENVIRONMENT, **os.environ}
            done = subprocess.run(command, check=True, cwd=ROOT, env=env, stdout=subprocess.PIPE)
            found.append(Cost(**json.loads(done.stdout)))
    return found


def _median(costs: Sequence[Cost], form: str, deed: str, what: str) -> float:
    return statistics.median(
        getattr(cost, what) for cost in costs if (cost.form, cost.deed) == (form, deed)
    )


def _times(costs: Sequence[Cost], deed: str, what: str) -> float:
    """How much less of it columns take than JSON."""
    return _median(costs, "JSON", deed, what) / _median(costs, "columns", deed, what)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--completions", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    add_output_option(parser, "store")
    return parser.parse_args()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--job"]:
        print(json.dumps(asdict(measure(Job(**json.loads(sys.argv[2]))))))
    else:
        main()
