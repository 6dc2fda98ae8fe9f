"""What the machine does by itself: copies, matrices, hashes, and memory mapped and given back.

python -m benchmarks.gpu_check.rates '{"what": "copies", "folder": "/tmp/x", "tiny": true}'
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.checked import Checked, Figure, Found, Options, check_one, in_words

MAPPED = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
"""Torch then takes memory by cuMemCreate and cuMemMap, as vLLM's sleep does."""
ROUNDS = 5


def check(folder: Path, options: Options) -> Iterator[Checked]:
    """Yield a check for each of `RATES`; they pass where they run."""
    for what in RATES:

        def look(what: str = what) -> Found:
            environment = MAPPED if what == "mapped memory" else None
            answer = options.ask(
                options.trainer,
                "rates",
                folder,
                environment=environment,
                what=what,
                tiny=options.tiny,
            )
            told = {name: Figure(**figure) for name, figure in answer["figures"].items()}
            return Found(passed=answer["passed"], measured=answer["measured"], figures=told)

        yield check_one("rates", what, look)


def _copies(folder: Path, tiny: bool) -> Found:
    """GB/s between the host and the GPU, and on the GPU, which reads and writes."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    size = (1 << 22) if tiny else (1 << 31)
    there = torch.empty(size, dtype=torch.uint8, device=device)
    other = torch.empty_like(there)
    here = torch.empty(size, dtype=torch.uint8)
    moves: dict[str, tuple[Callable[[], Any], int]] = {
        "on the GPU": (lambda: other.copy_(there), 2),
        "to the host": (lambda: here.copy_(there), 1),
        "from the host": (lambda: there.copy_(here), 1),
    }
    if device == "cuda":
        pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        moves["to pinned memory"] = (lambda: pinned.copy_(there), 1)
        moves["from pinned memory"] = (lambda: there.copy_(pinned), 1)
    return _rates({name: (move, times * size) for name, (move, times) in moves.items()})


def _matrices(folder: Path, tiny: bool) -> Found:
    """TFLOP/s of a product in bfloat16 and in float32."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    width = 256 if tiny else 8192
    found = {}
    for dtype in (torch.bfloat16, torch.float32):
        one = torch.randn(width, width, device=device, dtype=dtype)
        took = _seconds(partial(torch.matmul, one, one))
        name = str(dtype).removeprefix("torch.")
        found[name] = Figure(value=2 * width**3 / took / 1e12, unit="TFLOP/s")
    return Found(measured=in_words(found), figures=found)


def _host(folder: Path, tiny: bool) -> Found:
    """GB/s of hashes on one thread, and of a file written with fsync and read again."""
    from blake3 import blake3
    from xxhash import xxh3_128

    content = bytes(1 << 22 if tiny else 1 << 30)
    path = folder / "written"

    def write() -> None:
        with path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    return _rates(
        {
            "xxh3": (lambda: xxh3_128(content).digest(), len(content)),
            "blake3": (lambda: blake3(content).digest(), len(content)),
            "sha256": (lambda: hashlib.sha256(content).digest(), len(content)),
            "write": (write, len(content)),
            "read": (path.read_bytes, len(content)),
        },
        rounds=2,
    )


def _mapped(folder: Path, tiny: bool) -> Found:
    """Whether memory that was mapped is given back and can be taken again, several times."""
    import torch

    if not torch.cuda.is_available():
        return Found(measured="a CPU has no memory to map")
    torch.cuda.init()
    free = torch.cuda.mem_get_info()[0]
    size, sums = free // 2, []
    for number in range(3):
        taken = torch.full((size,), number + 1, dtype=torch.uint8, device="cuda")
        sums.append(int(taken[:: 1 << 20].sum()))
        del taken
        torch.cuda.empty_cache()
    kept = free - torch.cuda.mem_get_info()[0]
    is_right = sums[1] == 2 * sums[0] and sums[2] == 3 * sums[0]
    return Found(
        passed=is_right and kept < size // 10,
        measured=f"{size / 1e9:.1f} GB mapped and unmapped 3 times, {kept / 1e9:.2f} GB not back",
    )


RATES: dict[str, Callable[[Path, bool], Found]] = {
    "copies": _copies,
    "matrices": _matrices,
    "host": _host,
    "mapped memory": _mapped,
}


def _rates(moves: dict[str, tuple[Callable[[], Any], int]], rounds: int = ROUNDS) -> Found:
    found = {
        name: Figure(value=size / _seconds(move, rounds) / 1e9, unit="GB/s")
        for name, (move, size) in moves.items()
    }
    return Found(measured=in_words(found), figures=found)


def _seconds(move: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """Median of the rounds, after one to warm up."""
    import torch

    took = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        move()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
    return sorted(took[1:])[rounds // 2]


def main(job: dict[str, Any]) -> Found:
    """Return the answer to a job."""
    return RATES[job["what"]](Path(job["folder"]), job["tiny"])


if __name__ == "__main__":
    found = main(json.loads(sys.argv[1]))
    sys.stdout.write("\n" + json.dumps(asdict(found)) + "\n")
