"""Does this machine's GPU keep the promises? The same checks run on a CPU.

    python -m benchmarks.gpu_check                      # all parts, about ten minutes
    python -m benchmarks.gpu_check --parts training --count 2
    python -m benchmarks.gpu_check --vllm-python .venv-vllm/bin/python
    python -m benchmarks.gpu_check --large 64:2:512     # width:layers:tokens of the speed part

training   digests of tensors beside the CPU's, gradients of long texts again and again, and stock
           TRL, the actor, and the actor killed with SIGKILL, on the same batches: the same bits
           with deterministic kernels, with float32 matrices and under bfloat16 autocast
sampling   each engine, each way of syncing weights: after a sync, the greedy tokens and
           log-probabilities of a fresh engine with these weights; and the two engines against each
           other
speed      tokens a second of each engine, seconds of a train step, memory of the GPU

It needs no network, no Prefect server and no account. Each part runs in processes of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from benchmarks.gpu_check import attention, digests, sampling, speed, training
from benchmarks.gpu_check.checked import Checked
from benchmarks.gpu_check.device import describe_device
from benchmarks.output import add_output_option, console, results_table, write_results


@dataclass(frozen=True)
class Options:
    """What the parts are told."""

    count: int
    """Configurations to train."""
    engines: Mapping[str, str]
    """Interpreter of each engine."""
    large: speed.Size


PARTS: Mapping[str, Callable[[Path, Options], Iterator[Checked]]] = {
    "training": lambda folder, options: chain(
        digests.check(folder / "digests"),
        attention.check(folder / "long"),
        training.check(folder, options.count),
    ),
    "sampling": lambda folder, options: sampling.check(folder, options.engines),
    "speed": lambda folder, options: speed.check(folder, options.engines, options.large),
}


def main() -> int:
    args = _parse()
    device = describe_device()
    if device["why_no_gpu"]:
        console.print(
            f"This machine has a GPU, and torch cannot use it ({device['why_no_gpu']}).\n"
            "CUDA_VISIBLE_DEVICES= checks the CPU"
        )
        return 1
    console.print(f"on {device['name']}, torch {device['torch']}")
    options = Options(args.count, _engines(args.vllm_python), args.large)
    began = time.perf_counter()
    found: list[Checked] = []
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as name:
        for part in args.parts:
            for checked in PARTS[part](Path(name) / part, options):
                found.append(checked)
                console.print(checked.line())
    _report(found, time.perf_counter() - began)
    write_results(args.output, {"device": device, "checks": found})
    return int(any(not checked.passed for checked in found))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu_check",
        description="Training, sampling and speed on this machine's GPU, or its CPU.",
    )
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--count", type=int, default=6, help="configurations to train")
    parser.add_argument(
        "--vllm-python", help="interpreter with vLLM (default: this one, where it has vLLM)"
    )
    parser.add_argument(
        "--large",
        type=speed.Size.parse,
        default=speed.Size.for_this_machine(),
        metavar="WIDTH:LAYERS:TOKENS",
        help="the model and the completions of the speed part (default: half a billion parameters "
        "on a GPU, a small model on a CPU)",
    )
    add_output_option(parser, "gpu_check")
    return parser.parse_args()


def _engines(vllm_python: str | None) -> dict[str, str]:
    engines = {"transformers": sys.executable}
    if vllm_python is None and importlib.util.find_spec("vllm"):
        vllm_python = sys.executable
    if vllm_python is None:
        console.print("without vLLM: name an interpreter that has it with --vllm-python")
    else:
        engines["vllm"] = str(Path(vllm_python).absolute())
    return engines


def _report(found: Sequence[Checked], took_s: float) -> None:
    passed = sum(checked.passed for checked in found)
    table = results_table(
        f"{passed} of {len(found)} passed in {took_s / 60:.0f} min",
        *("part", "check", "passed", "seconds", "measured"),
        left=["part", "check", "measured"],
    )
    for checked in found:
        verdict = "yes" if checked.passed else "NO"
        table.add_row(
            checked.part, checked.name, verdict, f"{checked.took_s:.1f}", checked.measured
        )
    console.print(table)


if __name__ == "__main__":
    raise SystemExit(main())
