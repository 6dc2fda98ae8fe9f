"""Digests of tensors: does this device come to those of the CPU, and how fast?

python -m benchmarks.gpu_check.digests '{"folder": "/tmp/x"}'
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.checked import Checked, Found, Options, check_one, figures

SHAPES = ((), (7,), (5, 3), (151_936, 128), (4864, 896), (3, 1000, 64))
TYPES = ("float32", "bfloat16", "float16", "int8", "float8_e4m3fn")


def check(folder: Path, options: Options) -> Iterator[Checked]:
    """One check of all shapes and types."""

    def look() -> Found:
        answer = options.ask(options.trainer, "digests", folder)
        told = ", ".join(answer["other"]) or f"all {answer['count']} equal"
        measured = f"{answer['gb_per_s']:.1f} GB/s; {told}"
        rate = {"rate": answer["gb_per_s"]}
        return Found(passed=not answer["other"], measured=measured, figures=figures("GB/s", **rate))

    yield check_one("sampling", "digests of tensors, as on the CPU", look)


def main() -> dict[str, Any]:
    """Return the tensors whose digests are others here than on the CPU, and GB a second."""
    import torch

    from mortal_steps.rollout.weight_sync.tensor_digests import tensor_digests

    device = "cuda" if torch.cuda.is_available() else "cpu"
    tensors = {
        f"{dtype} {list(shape)}": torch.randn(shape).to(getattr(torch, dtype))
        for shape in SHAPES
        for dtype in TYPES
    }
    there = {name: tensor.to(device) for name, tensor in tensors.items()}
    here, found = tensor_digests(tensors.items()), tensor_digests(there.items())
    began = time.perf_counter()
    tensor_digests(there.items())
    took_s = time.perf_counter() - began
    return {
        "count": len(tensors),
        "other": [name for name in tensors if found[name] != here[name]],
        "gb_per_s": sum(tensor.nbytes for tensor in tensors.values()) / took_s / 1e9,
    }


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(main()) + "\n")
