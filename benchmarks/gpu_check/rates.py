"""What the machine does by itself: copies, matrices, hashes, and memory mapped and given back."""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.checked import Checked, Figure, Found, Options, check_one, in_words

MAPPED = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
"""Torch then takes memory by cuMemCreate and cuMemMap, as vLLM's sleep does."""
ROUNDS = 5


def check(folder: Path, options: Options) -> Iterator[Checked]:
    """Yield a check for each of the rates below; they pass where they run."""

    def look(rate: str, variables: Mapping[str, str] | None = None) -> Found:
        answer = options.ask(f"rates:{rate}", folder, variables=variables, tiny=options.tiny)
        told = {name: Figure(**figure) for name, figure in answer["figures"].items()}
        return Found(**{**answer, "figures": told})

    yield check_one("rates", "copies", lambda: look("copies"))
    yield check_one("rates", "matrices", lambda: look("matrices"))
    yield check_one("rates", "host", lambda: look("host"))
    yield check_one("rates", "mapped memory", lambda: look("mapped_memory", MAPPED))


def copies(job: dict[str, Any]) -> Found:
    """GB/s between the host and the GPU, and on the GPU, which reads and writes."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    size = (1 << 22) if job["tiny"] else (1 << 31)
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


def matrices(job: dict[str, Any]) -> Found:
    """TFLOP/s of a product in bfloat16 and in float32."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    width = 256 if job["tiny"] else 8192
    found = {}
    for dtype in (torch.bfloat16, torch.float32):
        one = torch.randn(width, width, device=device, dtype=dtype)
        took = _seconds(partial(torch.matmul, one, one))
        name = str(dtype).removeprefix("torch.")
        found[name] = Figure(value=2 * width**3 / took / 1e12, unit="TFLOP/s")
    return Found(measured=in_words(found), figures=found)


def host(job: dict[str, Any]) -> Found:
    """GB/s of hashes on one thread, and of a file written with fsync and read again."""
    from blake3 import blake3
    from xxhash import xxh3_128

    content = bytes(1 << 22 if job["tiny"] else 1 << 30)
    path = Path(job["folder"], "written")

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


def mapped_memory(job: dict[str, Any]) -> Found:
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
