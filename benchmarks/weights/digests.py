"""Seconds a gigabyte to digest tensors in the CPU's memory, beside hashes of the same bytes.

    python -m benchmarks.weights.digests

`sums` are those of `tensor_digests`: what each train step digests its weights by, and each engine
what it holds. XXH3 is the fastest hash at hand, of bytes that have to be in the CPU's memory, and
BLAKE3 is that of files; both by one thread. All are computed in turns, round by round, in CPU
seconds of all threads: a busy machine changes those less than the time on the clock, which is told
as well.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from blake3 import blake3
from xxhash import xxh3_128

from benchmarks.output import console, results_table
from mortal_steps.rollout.weight_sync import tensor_digests as sums

ROUNDS = 7
SHAPES = {"embedding": (151_936, 896), "layer": (4864, 896), "adapter": (896, 16)}
"""Of a model with 0.5 billion parameters."""
SMALL = [(77, 64), *[(64, 64), (128, 64), (64,)] * 10]
"""Such as those of the demo's model."""


def main() -> None:
    table = results_table(
        f"seconds a gigabyte, medians of {ROUNDS} rounds: CPU (clock)",
        *("tensor", "type", "GB", "sums, 1 thread", "all threads", "XXH3", "BLAKE3"),
        left=("tensor", "type"),
    )
    for name, shape in SHAPES.items():
        for dtype in (torch.float32, torch.bfloat16):
            tensor = torch.randn(shape).to(dtype)
            size = tensor.nbytes / 1e9
            found = _measured(_ways(tensor), max(1, int(2e7 / tensor.nbytes)))
            cells = (f"{cpu / size:.3f} ({wall / size:.3f})" for cpu, wall in found)
            table.add_row(name, str(dtype).removeprefix("torch."), f"{size:.4f}", *cells)
    console.print(table)
    named = [(str(number), torch.randn(shape)) for number, shape in enumerate(SMALL)]
    ((cpu, wall),) = _measured([lambda: sums.tensor_digests(named)], 10)
    console.print(f"{len(SMALL)} small tensors: {cpu * 1e3:.2f} ms of CPU ({wall * 1e3:.2f} ms)")


def _ways(tensor: torch.Tensor) -> list[Callable[[], object]]:
    content = memoryview(tensor.reshape(-1).view(torch.uint8).numpy())
    threads = torch.get_num_threads()

    def alone() -> object:
        torch.set_num_threads(1)
        try:
            return sums.sums_of(tensor)
        finally:
            torch.set_num_threads(threads)

    return [
        alone,
        lambda: sums.sums_of(tensor),
        lambda: xxh3_128(content).digest(),
        lambda: blake3(content).digest(),
    ]


def _measured(ways: list[Callable[[], object]], times: int) -> list[tuple[float, float]]:
    """CPU seconds and seconds on the clock of each."""
    spent: list[list[tuple[float, float]]] = [[] for _ in ways]
    for _ in range(ROUNDS):
        for way, rounds in zip(ways, spent, strict=True):
            began, began_cpu = time.perf_counter(), time.process_time()
            for _ in range(times):
                way()
            ended, ended_cpu = time.perf_counter(), time.process_time()
            rounds.append(((ended_cpu - began_cpu) / times, (ended - began) / times))
    return [
        (statistics.median(cpu for cpu, _ in rounds), statistics.median(wall for _, wall in rounds))
        for rounds in spent
    ]


if __name__ == "__main__":
    main()
